"""Start a task's process: with its environment, in its own session, tied to its supervisor."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import suppress
from typing import Dict

from ...shared.records import OPEN, STRICT, Launch
from .. import children, paths
from ..machine import guard, interfaces, process

SAVES, VERSIONS = "TFDEPLOY_SAVES", "TFDEPLOY_VERSIONS"
PEERS = "TFDEPLOY_PEERS"
LOCAL_PORTS, SOURCE_PORTS = "TFDEPLOY_LOCAL_PORTS", "TFDEPLOY_SOURCE_PORTS"
# A task with one of these variables imports the modules of the folder inside/.
NEEDS_INSIDE = (
    VERSIONS,
    "TFDEPLOY_CHECKPOINT_DEVICE",
    "TFDEPLOY_SAVE_ON_STOP",
    "TFDEPLOY_END_AT_EXIT",
)


def spawn(
    launch: Launch, task_dir: str, mark: str, output: int, directory: str = ""
) -> subprocess.Popen:  # type: ignore[type-arg]
    """Start the task's process in its own session, with `output` as stdout and stderr, in its work
    directory or another one.

    Raises OSError if the program cannot be run.
    """
    env = environment(launch, dict(os.environ), mark, paths.agent(), os.path.realpath(task_dir))
    env.update(_preloaded_if_possible(launch, env, task_dir))
    env.pop(LOCAL_PORTS, None)  # of a task that has started this process
    local_ports = guard.hold_local_ports() if PEERS in env else None
    if local_ports:
        env[LOCAL_PORTS] = "{} {}".format(*local_ports)
    for name, value in _interface_variables(launch).items():
        env.setdefault(name, value)
    with suppress(OSError):
        os.unlink(paths.versions(task_dir))
    return subprocess.Popen(
        launch.process.argv,
        cwd=directory or paths.work(task_dir),
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        preexec_fn=children.die_with(os.getpid()),
    )


def environment(
    launch: Launch, base: Dict[str, str], mark: str, agent: str, task_dir: str
) -> Dict[str, str]:
    """Return the task's environment: the host's, `base`, overridden by the launch. Pure.

    `task_dir` is a path without symbolic links, for inside/preload/files.c.
    """
    env = {
        **_common(launch, base),
        process.MARK: mark,
        SAVES: paths.saves(task_dir),
        **({VERSIONS: paths.versions(task_dir)} if launch.has_peers else {}),
    }
    if any(name in env for name in NEEDS_INSIDE):
        inside = os.path.join(agent, "inside")
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [inside, env.get("PYTHONPATH", "")]))
    return env


def _interface_variables(launch: Launch) -> Dict[str, str]:
    """Return the variables that make NCCL and Gloo use the interface with the host's address; {} if
    the run has one host, or no interface except loopback has it."""
    if len(launch.endpoint.no_proxy) < 2:
        return {}
    own = launch.endpoint.address
    with suppress(OSError):  # it has no IPv4 address
        own = socket.gethostbyname(own) if own else ""
    name = interfaces.with_address(own)
    return {"NCCL_SOCKET_IFNAME": "=" + name, "GLOO_SOCKET_IFNAME": name} if name else {}


def environment_of_user(launch: Launch, base: Dict[str, str], task_dir: str) -> Dict[str, str]:
    """Return the environment of a command that a user runs beside the task.

    It has no mark, so a stop or a restart of the task does not end it; and none of tfdeploy's hooks
    of the training, which would report what it saves as the task's.
    """
    env = _common(launch, base)
    for name in (*NEEDS_INSIDE, SAVES):
        env.pop(name, None)
    env["PWD"] = paths.work(task_dir)
    return {**env, **_preloaded_if_possible(launch, env, task_dir)}


def _common(launch: Launch, base: Dict[str, str]) -> Dict[str, str]:
    env = {**base, **launch.process.env, **launch.process.secrets, "PYTHONDONTWRITEBYTECODE": "1"}
    # A proxy breaks the traffic between tasks, but the script may need it for the internet.
    for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
        env[name] = ",".join(filter(None, [env.get(name, ""), *launch.endpoint.no_proxy]))
    return env


def _preloaded_if_possible(launch: Launch, env: Dict[str, str], task_dir: str) -> Dict[str, str]:
    """Return what `preloaded` does, or nothing if the library cannot be loaded here.

    A guarded task is then ended before it is READY; `start` has refused it before that.
    """
    try:
        variables = preloaded(launch, env, guard.prepare(), task_dir)
    except guard.NotLoadable:
        return {}
    ports = guard.read_ports(task_dir) if launch.endpoint.network == STRICT else None
    return {**variables, SOURCE_PORTS: "{} {}".format(*ports)} if ports else variables


def preloaded(launch: Launch, env: Dict[str, str], library: str, task_dir: str) -> Dict[str, str]:
    """Return the variables that load `library` into each process of the task. Pure.

    It comes last: what the user preloads, an allocator for example, is found before it.
    """
    variables = {"LD_PRELOAD": ":".join(filter(None, [env.get("LD_PRELOAD", ""), library]))}
    if launch.endpoint.network != OPEN:
        variables[PEERS] = paths.peers(task_dir)
    return variables
