"""Reach machines that have no hosts.toml yet, and find a Python for the agent on each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.config.inventory import Host, Inventory, Training
from tfdeploy.errors import CommandFailed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tfdeploy.errors import TfdeployError
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.init.targets import Target

PROBE_S = 60.0
MARK = "tfdeploy-found:"
# The folders, besides those of the PATH, in which a host may have a Python for the agent.
PLACES = "python3 /usr/bin/python3 /usr/local/bin/python3 /opt/*/bin/python3 ~/*/bin/python3"
# One line: a csh as login shell accepts no line break within quotes.
PROBE = (
    f'echo "{MARK}kernel $(uname -s)"; '
    f'command -v rsync >/dev/null 2>&1 && echo "{MARK}rsync yes"; '
    f"for python in {PLACES}; do "
    '"$python" -S -E -c "import sys; sys.exit(sys.version_info < (3, 8))" >/dev/null 2>&1 '
    f'&& {{ echo "{MARK}python $python"; break; }}; done; true'
)


def inventory_of(
    targets: Sequence[Target], file: Path, ssh_config: str, pythons: Mapping[str, str] | None = None
) -> Inventory:
    """Return an inventory in memory, with which a Fleet reaches the hosts. `pythons` has the Python
    of each host; without it, all hosts are listed with the default."""
    hosts = tuple(
        Host(
            name=target.name,
            transport="local" if target.is_local else "ssh",
            user=target.user or None,
            python=(pythons or {}).get(target.name, "python3"),
        )
        for target in targets
        if pythons is None or target.name in pythons
    )
    return Inventory(
        file=file.absolute(),
        project="init",
        ssh_config=ssh_config or None,
        training=Training(command=("true",)),
        hosts=hosts,
    )


def find_agent_pythons(fleet: Fleet) -> dict[str, str | TfdeployError]:
    """Return, for each host, a Python that can run the agent; or why the host is of no use: it is
    not reached, or lacks what every host must have."""

    def find(agent: Agent) -> str:
        done = agent.transport.run(["sh", "-c", PROBE], timeout_s=PROBE_S)
        needs_rsync = fleet.inventory.host(agent.host).uses_ssh
        return agent_python(agent.host, done.stdout, needs_rsync=needs_rsync)

    return fleet.outcomes(fleet.agents, find)


def agent_python(host: str, output: bytes, *, needs_rsync: bool) -> str:
    """Return the path of a Python, 3.8 or newer, from the output of PROBE. Pure.

    Raises CommandFailed if the host lacks what every host must have.
    """
    lines = output.decode(errors="replace").splitlines()
    marked = [line.removeprefix(MARK).partition(" ") for line in lines if line.startswith(MARK)]
    found = {key: value for key, _, value in marked}
    kernel, python = found.get("kernel", ""), found.get("python", "")
    if kernel != "Linux":
        raise CommandFailed(host, f"it runs {kernel[:40] or 'no Unix shell'}; expected Linux")
    if not python or not python.isprintable() or python.startswith("-"):
        raise CommandFailed(host, "it has no Python 3.8 or newer", "install python3 on the host")
    if needs_rsync and "rsync" not in found:
        raise CommandFailed(host, "rsync is not installed", "install rsync on the host")
    return python
