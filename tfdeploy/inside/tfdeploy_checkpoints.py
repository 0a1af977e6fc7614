"""Let the process that saves a checkpoint write all of its files, instead of the parameter servers.

TensorFlow saves every variable on the machine that holds it, which requires a file system that all
of them share. With this patch the values are sent to the process that saves, and it writes one
complete checkpoint.
"""

import inspect
import re
import sys
from typing import Any, Callable, Optional

from tensorflow.python.checkpoint.checkpoint_options import CheckpointOptions
from tensorflow.python.eager.context import get_server_def
from tensorflow.python.framework.ops import (
    GraphKeys,
    device,
    executing_eagerly_outside_functions,
    get_default_graph,
)
from tensorflow.python.training.saver import BaseSaverBuilder

# No job: TensorFlow places it on the machine of the session's own master. With the chief's job,
# every other worker that sets device filters would fail: its session can't use that device, but
# each worker builds the same save ops, although it never runs them.
OWN_CPU = "/device:CPU:0"


def save_on_own_disk(chief_cpu: str) -> None:
    """Patch both of TensorFlow's ways to save, or raise and patch neither.

    `chief_cpu` is the chief's device, such as `/job:worker/task:0/device:CPU:0`.
    """
    build = _build_on_own_cpu(BaseSaverBuilder._build_internal)
    io_device = _IoDevice(CheckpointOptions.experimental_io_device, chief_cpu)
    BaseSaverBuilder._build_internal = build
    CheckpointOptions.experimental_io_device = io_device
    _bound_memory()


def _bound_memory() -> None:
    """Send values in pieces if this TensorFlow has what that needs, otherwise all at once."""
    try:
        from tfdeploy_bounded import bound_memory  # it imports this module

        bound_memory()
    except Exception as error:
        print(
            "tfdeploy: checkpoints pass through the chief at once, not in pieces: %s" % error,
            file=sys.stderr,
        )


def saves_on_own_cpu() -> bool:
    """Return whether the ops of a compat.v1 Saver for the current graph are on OWN_CPU."""
    return not executing_eagerly_outside_functions() and _graph_is_in_cluster()


def device_is_default(options: Any) -> bool:
    """Return whether these CheckpointOptions leave the device to save_on_own_disk."""
    chosen = CheckpointOptions.experimental_io_device
    return isinstance(chosen, _IoDevice) and chosen.is_default(options)


def _build_on_own_cpu(build: Callable[..., Any]) -> Callable[..., Any]:
    """compat.v1: patch the ops of every Saver, also those of Scaffold and SavedModel's builder."""
    signature = inspect.signature(build)
    if "sharded" not in signature.parameters:
        raise TypeError("TensorFlow's saver has no parameter 'sharded'")

    def build_internal(*args: Any, **kwargs: Any) -> Any:
        if not saves_on_own_cpu():
            return build(*args, **kwargs)
        call = signature.bind(*args, **kwargs)
        call.arguments["sharded"] = False
        # device(None) clears the scopes around the call, such as a replica_device_setter.
        with device(None), device(OWN_CPU):
            return build(*call.args, **call.kwargs)

    return build_internal


class _IoDevice:
    """TF2: the default of CheckpointOptions.experimental_io_device.

    Checkpoint, CheckpointManager and SavedModel all create such options if they get none. The
    default is computed when it is read: a script may create its options before it has a cluster.
    """

    def __init__(self, slot: Any, chief_cpu: str) -> None:
        self.slot = slot
        self.chief_cpu = chief_cpu

    def __get__(self, options: Any, owner: Any = None) -> Any:
        if options is None:
            return self
        chosen = self.slot.__get__(options)
        return _default_device(self.chief_cpu) if chosen is None else chosen

    def __set__(self, options: Any, value: Any) -> None:
        self.slot.__set__(options, value)

    def is_default(self, options: Any) -> bool:
        """Return whether the options name no device and the chief writes what they save."""
        return self.slot.__get__(options) is None and _default_device(self.chief_cpu) is not None


def _default_device(chief_cpu: str) -> Optional[str]:
    if executing_eagerly_outside_functions():
        return _coordinator_cpu()
    # Restore ops are built in scopes of the variables' jobs: only a device with a job overrides it.
    return chief_cpu if _graph_is_in_cluster() else None


def _coordinator_cpu() -> Optional[str]:
    """Return this process's CPU by its name in the cluster: TensorFlow rejects /job:localhost."""
    server = get_server_def()
    if server is None or "ps" not in {job.name for job in server.cluster.job}:
        return None
    return "/job:%s/replica:0/task:%d%s" % (server.job_name, server.task_index, OWN_CPU)


def _graph_is_in_cluster() -> bool:
    variables = get_default_graph().get_collection(GraphKeys.GLOBAL_VARIABLES)
    return any(_is_remote(getattr(variable, "device", None)) for variable in variables)


def _is_remote(name: Optional[str]) -> bool:
    job = re.search("/job:([^/]+)", name or "")
    return job is not None and job.group(1) not in ("localhost", "local")
