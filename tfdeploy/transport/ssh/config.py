"""Resolve a host's SSH settings with `ssh -G`, so that tfdeploy and ssh agree.

Paramiko's own parser ignores Include and misreads Match. A process takes 5 ms, and each host is
asked for several times in a command, so an answer is used for ANSWER_S seconds.
"""

from __future__ import annotations

import functools
import getpass
import json
import logging
import re
import shlex
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdeploy.errors import AuthenticationFailed, Unreachable

if TYPE_CHECKING:
    from tfdeploy.config.inventory import Host, Inventory


_log = logging.getLogger(__name__)
CONNECT_TIMEOUT_S = 10
PORT = 22
ANSWER_S = 10.0
MAX_ANSWERS = 4096
DEFAULT_KEY = re.compile(r"/\.ssh/id_(rsa|dsa|ecdsa|ecdsa_sk|ed25519|ed25519_sk|xmss)$")


@dataclass(frozen=True)
class SshConfig:
    """The resolved settings of one host, named as in ssh_config(5). `new_keys_file` is the
    known_hosts file to which ssh would add a new host key."""

    hostname: str
    user: str
    port: int
    identity_files: tuple[Path, ...]
    identities_only: bool
    proxy_jump: str | None
    proxy_command: str | None
    known_hosts: tuple[Path, ...]
    host_key_alias: str | None
    new_keys_file: Path | None

    @property
    def known_names(self) -> list[str]:
        """The names under which ssh looks for the host's key, in its order."""
        if self.host_key_alias:
            return [self.host_key_alias]
        if self.port == PORT:
            return [self.hostname]
        return [f"[{self.hostname}]:{self.port}", self.hostname]

    def missing_keys(self) -> list[Path]:
        """Return the key files that ssh's configuration names and that do not exist: ssh leaves
        them out. Its defaults, which come together, may be absent."""
        files = self.identity_files
        is_default = len(files) > 1 and all(map(DEFAULT_KEY.search, map(str, files)))
        return [] if is_default else [file for file in files if not file.is_file()]


def ssh_command(host: Host, inventory: Inventory) -> list[str]:
    """Return ssh's command line for a host that Fabric connects to, without the host's name. ssh
    itself adds no key to known_hosts (host_keys.py does)."""
    argv = users_command(host, inventory)
    argv += ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "UpdateHostKeys=no"]
    return [*argv, "-o", f"ConnectTimeout={CONNECT_TIMEOUT_S}", "-o", "ForwardAgent=no", "-T"]


def users_command(host: Host, inventory: Inventory) -> list[str]:
    """Return ssh's command line for a host as its user would type it, without the host's name; keys
    in hosts.toml override those of ssh_config."""
    argv = jump_command(inventory)
    argv += ["-o", f"HostName={host.hostname}"] if host.hostname else []
    argv += ["-l", host.user] if host.user else []
    argv += ["-p", str(host.port)] if host.port else []
    argv += ["-J", host.proxy_jump] if host.proxy_jump else []
    if host.identity_file:
        key = inventory.absolute(host.identity_file)
        argv += ["-i", str(key), "-o", "IdentitiesOnly=yes"]
    return argv


def resolve(host: Host, inventory: Inventory) -> SshConfig:
    """Resolve a host's settings. Raises Unreachable if ssh or its configuration fails."""
    return _read_answer(answer(host, inventory), host.name)


def resolve_jump(jump: str, inventory: Inventory) -> SshConfig:
    """Resolve the settings of a jump host, written as for -J: [user@]host[:port]."""
    return _read_answer(answer_for_jump(jump, inventory), jump)


def answer(host: Host, inventory: Inventory) -> str:
    """Return the answer of `ssh -G` for a host. Raises Unreachable."""
    argv = [*users_command(host, inventory), "-G", "--", host.name]
    return _query(host.name, tuple(argv), period(ANSWER_S))


def answer_for_jump(jump: str, inventory: Inventory) -> str:
    """Return the answer of `ssh -G` for a jump host. Raises Unreachable."""
    argv = [*jump_command(inventory), "-G", "--", f"ssh://{jump}"]
    return _query(jump, tuple(argv), period(ANSWER_S))


def jump_command(inventory: Inventory) -> list[str]:
    """Return ssh's command line for any jump host, without its name."""
    file = inventory.ssh_config
    return ["ssh", *(["-F", str(inventory.absolute(file))] if file else [])]


def settings(text: str) -> dict[str, list[str]]:
    """Return the settings in an answer of `ssh -G`: the values of each keyword, in lower case."""
    values: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        values.setdefault(key, []).append(value)
    return values


def certificates(text: str) -> list[str]:
    """Return the files of the user's certificates that exist, by an answer of `ssh -G`: those that
    the configuration names, and those beside keys."""
    values = settings(text)
    files = [
        *values.get("certificatefile", []),
        *(f"{key}-cert.pub" for key in values.get("identityfile", [])),
    ]
    paths = (Path(_expand_tokens(file, {"%d": str(Path.home())})).expanduser() for file in files)
    return [str(path) for path in paths if path.is_file()]


def period(seconds: float) -> int:
    """Return a number that changes after each such time: what is cached with it is asked again."""
    return int(time.monotonic() / seconds)


@functools.lru_cache(maxsize=MAX_ANSWERS)
def _query(name: str, argv: tuple[str, ...], period: int) -> str:
    """Return ssh's output. Raises Unreachable."""
    _log.debug("%s: %s", name, shlex.join(argv))
    try:
        process = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise Unreachable(
            name,
            "OpenSSH's client is not installed on the controller",
            "apt-get install openssh-client",
        ) from None
    except OSError as error:
        raise Unreachable(name, f"ssh can't be run on the controller: {error.strerror}") from None
    if process.returncode != 0:
        reason = "; ".join(line.strip() for line in process.stderr.splitlines())
        raise Unreachable(name, f"ssh refuses its configuration: {reason}")
    return process.stdout


def _read_answer(text: str, name: str) -> SshConfig:
    """Return the settings that `ssh -G` printed. Raises Unreachable."""
    try:
        return _parse(text, name)
    except (ValueError, OSError, RuntimeError) as error:  # the last: a home of an unknown user
        reason = f"its settings in ssh's configuration can't be read: {error}"
        raise Unreachable(name, reason) from None


def _parse(text: str, name: str) -> SshConfig:
    values = settings(text)

    def first(key: str) -> str | None:
        value = values.get(key, ["none"])[0]
        return None if value in ("none", "") else value

    port = first("port") or str(PORT)
    tokens = {"%%": "%", "%h": first("hostname") or "", "%r": first("user") or ""}
    path_tokens = {**tokens, "%d": str(Path.home()), "%u": getpass.getuser()}
    ssh_command = first("proxycommand")
    users = _paths(first("userknownhostsfile"))
    return SshConfig(
        hostname=first("hostname") or "",
        user=first("user") or "",
        port=int(port),
        identity_files=tuple(
            Path(_expand_tokens(path, path_tokens)).expanduser()
            for path in values.get("identityfile", [])
            if path != "none"
        ),
        identities_only=first("identitiesonly") == "yes",
        proxy_jump=first("proxyjump"),
        proxy_command=ssh_command
        and _expand_tokens(ssh_command, {**tokens, "%p": port, "%n": name}),
        known_hosts=(*users, *_paths(first("globalknownhostsfile"))),
        host_key_alias=first("hostkeyalias"),
        new_keys_file=next(iter(users), None),
    )


def _paths(value: str | None) -> list[Path]:
    """Parse paths that are separated by spaces; ssh prints one path with spaces the same way."""
    whole = Path(value or "").expanduser()
    if value and whole.is_file():
        return [whole]
    return [Path(word).expanduser() for word in (value or "").split()]


def _expand_tokens(text: str, tokens: dict[str, str]) -> str:
    """Replace the tokens that ssh -G does not expand (ssh_config(5), TOKENS)."""
    return re.sub("%.", lambda match: tokens.get(match[0], match[0]), text)


@dataclass(frozen=True)
class Route:
    """A host's name, its SSH settings, and the name and settings of each jump host in order."""

    name: str
    config: SshConfig
    jumps: tuple[tuple[str, SshConfig], ...]

    def __str__(self) -> str:
        """Return the user, address and port, and what the connection goes through, without the
        words of a ProxyCommand, which may have a secret."""
        jumps = "".join(f" through {jump}" for jump, _ in self.jumps)
        proxy = " through a ProxyCommand" if self.config.proxy_command else ""
        return f"{self.config.user}@{self.config.hostname} port {self.config.port}{jumps}{proxy}"

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
