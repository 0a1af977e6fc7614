"""The route to a host: address, user, keys and jump hosts, as SSH's configuration resolves them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdeploy.errors import AuthenticationFailed
from tfdeploy.transport.ssh.config import SshConfig, resolve, resolve_jump

if TYPE_CHECKING:
    from tfdeploy.config.inventory import Host, Inventory


@dataclass(frozen=True)
class Route:
    """A host's name, its SSH settings, and the name and settings of each jump host in order."""

    name: str
    config: SshConfig
    jumps: tuple[tuple[str, SshConfig], ...]

    def to_json(self) -> str:
        """Return JSON; equal routes have equal JSON, and its paths are absolute."""
        return json.dumps(vars(self), default=_to_plain, sort_keys=True)

    @classmethod
    def from_table(cls, table: dict[str, Any]) -> Route:
        """Return the route of the JSON object that `to_json` wrote."""
        jumps = tuple((jump, _config_from(settings)) for jump, settings in table["jumps"])
        return cls(table["name"], _config_from(table["config"]), jumps)


def resolve_route(host: Host, inventory: Inventory) -> Route:
    """Resolve the route with OpenSSH. Raises Unreachable if ssh or its configuration fails, and
    AuthenticationFailed if hosts.toml names a key file that does not exist."""
    _refuse_missing_key(host, inventory)
    config = resolve(host, inventory)
    jumps = config.proxy_jump.split(",") if config.proxy_jump else []
    return Route(
        host.name,
        config,
        tuple((jump, resolve_jump(jump.removeprefix("ssh://"), inventory)) for jump in jumps),
    )


def _refuse_missing_key(host: Host, inventory: Inventory) -> None:
    """Raise AuthenticationFailed if the key file that hosts.toml names does not exist: ssh leaves
    it out, and the host would only refuse every other key."""
    if host.identity_file and not inventory.absolute(host.identity_file).is_file():
        raise AuthenticationFailed(
            host.name,
            f'identity_file = "{host.identity_file}" in hosts.toml is not a file on the controller',
            "correct identity_file of the host or of [defaults]",
        )


def _to_plain(value: Any) -> Any:
    return str(value.absolute()) if isinstance(value, Path) else vars(value)


def _config_from(table: dict[str, Any]) -> SshConfig:
    paths = {key: tuple(map(Path, table[key])) for key in ("identity_files", "known_hosts")}
    new_keys_file = table["new_keys_file"]
    return SshConfig(**{**table, **paths, "new_keys_file": new_keys_file and Path(new_keys_file)})
