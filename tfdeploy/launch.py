"""A Plan and a Release become one Launch per task: the complete order to start it. Pure."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from tfdeploy import roles
from tfdeploy.agent.records import Launch
from tfdeploy.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tfdeploy.inventory import Host, Inventory, Training
    from tfdeploy.plan import Placement, Plan

PYTHON_WORDS = ("python", "python3")
NO_GPU = "-1"
# Source of both: without "use_caller" a dead peer fails RPCs at once where TensorFlow would wait;
# without the other a log shows nothing until its buffer is full.
DEFAULT_ENV = {"GRPC_FAIL_FAST": "use_caller", "PYTHONUNBUFFERED": "1"}


def make(inventory: Inventory, plan: Plan, run: str, release: str) -> tuple[Launch, ...]:
    """One Launch per placement, in the plan's order. Raises PlanError for an unknown {field}."""
    return tuple(_launch(inventory, plan, p, run, release) for p in plan.placements)


def check_script(inventory: Inventory, files: Collection[str]) -> None:
    """Refuse a command whose script isn't among the release's files. Raises PlanError."""
    command = inventory.training.command
    if command[0] not in PYTHON_WORDS or len(command) < 2 or not command[1].endswith(".py"):
        return
    script = command[1].removeprefix("./")
    if script.startswith("/") or "{" in script or script in files:
        return
    close = difflib.get_close_matches(script, files, n=1)
    raise PlanError(
        f"training.command: {script} is not among the files that would be pushed "
        f"from {inventory.source_root}",
        f"did you mean {close[0]}?" if close else "see source.path, source.exclude and .gitignore",
    )


def _launch(
    inventory: Inventory, plan: Plan, placement: Placement, run: str, release: str
) -> Launch:
    training, host = inventory.training, inventory.host(placement.host)
    values = roles.fields(plan, placement, training, host)
    return Launch(
        project=inventory.project,
        run=run,
        job=placement.task.job,
        index=placement.task.index,
        release=release,
        argv=_argv(training, plan, placement, values),
        env=_env(training, plan, placement, host, values),
        port=placement.port,
        gpus=list(placement.gpus),
        checkpoint_dir=training.checkpoint_dir,
        no_proxy=sorted({p.address for p in plan.placements}),
        stop_grace_s=training.stop_grace_s,
    )


def _argv(
    training: Training, plan: Plan, placement: Placement, values: Mapping[str, str]
) -> list[str]:
    first, *rest = [roles.fill(word, values, "training.command") for word in training.command]
    program = values["python"] if first in PYTHON_WORDS else first
    template = [roles.fill(word, values, "training.role_args") for word in training.role_args]
    return [program, *rest, *roles.arguments(training, plan, placement), *template]


def _env(
    training: Training, plan: Plan, placement: Placement, host: Host, values: Mapping[str, str]
) -> dict[str, str]:
    told = {
        name: roles.fill(value, values, f"training.role_env.{name}")
        for name, value in training.role_env.items()
    }
    return {
        **DEFAULT_ENV,
        **training.env,
        **host.env,
        **told,
        **roles.environment(training, plan, placement),
        **_checkpoints_on_chief(training, plan, placement),
        "CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in placement.gpus) or NO_GPU,
    }


def _checkpoints_on_chief(training: Training, plan: Plan, placement: Placement) -> dict[str, str]:
    """Where Saver must run so that checkpoints need no shared filesystem; see tfdeploy/inside."""
    wanted = training.checkpoints_on_chief and "ps" in plan.cluster
    if not wanted or not placement.task.in_cluster:
        return {}
    chief = plan.chief.task
    return {"TFDEPLOY_CHECKPOINT_DEVICE": f"/job:{chief.job}/task:{chief.index}/device:CPU:0"}
