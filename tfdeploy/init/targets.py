"""Read the hosts that the user typed: [USER@]HOST, or a pattern such as gpu-[01-16]. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.errors import InventoryError
from tfdeploy.formatting.hostlist import expand_names

if TYPE_CHECKING:
    from collections.abc import Iterable

LOCAL = "this-machine"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
USER = re.compile(r"[\w.+%-]+")
PORT = re.compile(r"([^:]+):(\d+)")


@dataclass(frozen=True)
class Target:
    """A host as the user typed it; `user` is "" if ssh's configuration has it."""

    name: str
    user: str = ""

    @property
    def is_local(self) -> bool:
        return self.name == LOCAL


def parse(words: Iterable[str], *, local: bool) -> tuple[Target, ...]:
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
