"""Reach the machines that the user typed, which have no hosts.toml yet, and find a Python for the
agent on each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.config.inventory import Host, Inventory, Training
from tfdeploy.errors import CommandFailed, InventoryError
from tfdeploy.formatting.hostlist import expand_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from tfdeploy.errors import TfdeployError
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet

LOCAL = "this-machine"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
USER = re.compile(r"[\w.+%-]+")
PORT = re.compile(r"([^:]+):(\d+)")
PROBE_S = 60.0
MARK = "tfdeploy-found:"
# Where a host may have a Python for the agent; other hosts than the controller also in FOLDERS, of
# which those of a clone are left out.
PLACES = "python3 /usr/bin/python3 /usr/local/bin/python3"
FOLDERS = "/opt/*/bin/python3 ~/*/bin/python3"


@dataclass(frozen=True)
class Target:
    """A host as the user typed it; `user` is "" if ssh's configuration has it."""

    name: str
    user: str = ""

    @property
    def is_local(self) -> bool:
        return self.name == LOCAL


def parse_targets(words: Iterable[str], *, local: bool) -> tuple[Target, ...]:
    """Return the hosts in their order, each once; with `local` this machine comes first. Raises
    InventoryError for a word that is no host."""
    found = {LOCAL: Target(LOCAL)} if local else {}
    for word in words:
        if not word.strip():
            raise InventoryError(f'found the host "{word}"; expected a name or USER@NAME')
        for target in _expand(word.rstrip(",")):
            first = found.setdefault(target.name, target)
            if first != target:
                raise InventoryError(
                    f"{word}: {target.name} has two users, {first.user or 'none'} and "
                    f"{target.user or 'none'}; expected one"
                )
    return tuple(found.values())


def _expand(word: str) -> list[Target]:
    user, at, host = word.rpartition("@")
    try:
        names = expand_names(host)
    except ValueError as error:
        raise InventoryError(f"{word}: {error}") from None
    if at and not USER.fullmatch(user):
        raise InventoryError(f'{word}: found the user "{user}"; expected USER@HOST')
    for name in names:
        _check(word, name)
    return [Target(name, user) for name in names]


def _check(word: str, name: str) -> None:
    """Raise InventoryError if `name` can't be a host's table."""
    if port := PORT.fullmatch(name):
        raise InventoryError(
            f"{word}: a port is not part of a host's name",
            f"add it to ~/.ssh/config, then name {port[1]}: Host {port[1]}, Port {port[2]}",
        )
    if "://" in name or "/" in name:
        raise InventoryError(f"{word}: expected [USER@]HOST, without scheme and path")
    if name in (LOCAL, "agent") or not NAME.fullmatch(name):
        raise InventoryError(
            f"{word}: expected a name that ssh knows, such as gpu-01, or an IPv4 address",
            "~/.ssh/config can give a machine a name: Host gpu-01, HostName fd00::1",
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
        needs_rsync = fleet.inventory.host(agent.host).uses_ssh
        probe = _probe(f"{PLACES} {FOLDERS}" if needs_rsync else PLACES)
        done = agent.transport.run(["sh", "-c", probe], timeout_s=PROBE_S)
        return agent_python(agent.host, done.stdout, needs_rsync=needs_rsync)

    return fleet.outcomes(fleet.agents, find)


def _probe(places: str) -> str:
    """Return a script that finds a Python in one of `places`. One line without "!": a csh as login
    shell accepts neither within quotes."""
    return (
        f'echo "{MARK}kernel $(uname -s)"; '
        f'command -v rsync >/dev/null 2>&1 && echo "{MARK}rsync yes"; '
        f"for python in {places}; do "
        'test -e "${python%/bin/python3}/.git" && continue; '
        '"$python" -S -E -c "import sys; sys.exit(sys.version_info < (3, 8))" >/dev/null 2>&1 '
        f'&& {{ echo "{MARK}python $python"; break; }}; done; true'
    )


def agent_python(host: str, output: bytes, *, needs_rsync: bool) -> str:
    """Return the path of a Python, 3.8 or newer, from the output of the probe. Pure.

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
