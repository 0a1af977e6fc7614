"""The way to a host: all that decides where, as whom and through which hosts SSH connects."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdeploy.transport import openssh
from tfdeploy.transport.openssh import SshConfig

if TYPE_CHECKING:
    from tfdeploy.inventory import Host, Inventory


@dataclass(frozen=True)
class Way:
    """A host's name, its settings, and those of each jump host in their order."""

    name: str
    config: SshConfig
    jumps: tuple[tuple[str, SshConfig], ...]

    def to_json(self) -> str:
        """Equal for equal ways, and good in any folder: every path is absolute."""
        return json.dumps(vars(self), default=_plain, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Way:
        table = json.loads(text)
        jumps = tuple((jump, _config(settings)) for jump, settings in table["jumps"])
        return cls(table["name"], _config(table["config"]), jumps)


def way(host: Host, inventory: Inventory) -> Way:
    """Ask OpenSSH. Raises Unreachable where it or its configuration fails."""
    config = openssh.resolve(host, inventory)
    jumps = config.proxy_jump.split(",") if config.proxy_jump else []
    return Way(
        host.name,
        config,
        tuple(
            (jump, openssh.resolve_jump(jump.removeprefix("ssh://"), inventory)) for jump in jumps
        ),
    )


def _plain(value: Any) -> Any:
    return str(value.absolute()) if isinstance(value, Path) else vars(value)


def _config(table: dict[str, Any]) -> SshConfig:
    several = {key: tuple(map(Path, table[key])) for key in ("identity_files", "known_hosts")}
    remembers = table["remembers_in"]
    return SshConfig(**{**table, **several, "remembers_in": remembers and Path(remembers)})
