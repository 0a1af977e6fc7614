"""What OpenSSH's own configuration says of a host: asked with `ssh -G`, so that both agree.

Paramiko's reader ignores Include and misreads Match; ssh itself does not. But a process for each
host costs more than all else that is done with it, so ssh is asked once, until something changes.
"""

from __future__ import annotations

import getpass
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.errors import Unreachable
from tfdeploy.transport import answers, sources

if TYPE_CHECKING:
    from tfdeploy.inventory import Host, Inventory

CONNECT_TIMEOUT_S = 10
PORT = 22
CHATTER = ("debug1: ", "OpenSSH_")  # what -v adds to the errors


@dataclass(frozen=True)
class SshConfig:
    """The resolved settings of one host, spelled as in ssh_config(5)."""

    hostname: str
    user: str
    port: int
    identity_files: tuple[Path, ...]
    identities_only: bool
    proxy_jump: str | None
    proxy_command: str | None
    known_hosts: tuple[Path, ...]
    host_key_alias: str | None
    remembers_in: Path | None


def command(host: Host, inventory: Inventory, *, accept_new: bool = False) -> list[str]:
    """The ssh command line for a host, less the host: hosts.toml's keys over the ssh_config's."""
    checking = "accept-new" if accept_new else "yes"
    argv = ["ssh", *_config_file(inventory)]
    argv += ["-o", "BatchMode=yes", "-o", f"StrictHostKeyChecking={checking}"]
    argv += ["-o", f"ConnectTimeout={CONNECT_TIMEOUT_S}", "-o", "ForwardAgent=no", "-T"]
    argv += ["-o", f"HostName={host.hostname}"] if host.hostname else []
    argv += ["-l", host.user] if host.user else []
    argv += ["-p", str(host.port)] if host.port else []
    argv += ["-J", host.proxy_jump] if host.proxy_jump else []
    if host.identity_file:
        key = anchored(host.identity_file, inventory)
        argv += ["-i", str(key), "-o", "IdentitiesOnly=yes"]
    return argv


def resolve(host: Host, inventory: Inventory) -> SshConfig:
    """Ask ssh itself what it would do. Raises Unreachable where ssh or its configuration fails."""
    argv = [*command(host, inventory), "-G", "--", host.name]
    return _parsed(_answer(host.name, argv, inventory), host.name)


def resolve_jump(jump: str, inventory: Inventory) -> SshConfig:
    """The settings of one jump host, written as in -J: [user@]host[:port]."""
    argv = ["ssh", *_config_file(inventory), "-G", "--", f"ssh://{jump}"]
    return _parsed(_answer(jump, argv, inventory), jump)


def anchored(path: str, inventory: Inventory) -> Path:
    """A path of hosts.toml: `~` is this user's home, a relative one begins at hosts.toml."""
    return (inventory.file.parent / Path(path).expanduser()).absolute()


def _config_file(inventory: Inventory) -> list[str]:
    return ["-F", str(anchored(inventory.ssh_config, inventory))] if inventory.ssh_config else []


def _answer(name: str, argv: list[str], inventory: Inventory) -> str:
    """What ssh answers, asked only where that may have changed since it was asked last."""
    program = shutil.which(argv[0]) or argv[0]
    config = next(iter(_config_file(inventory)[1:]), None)
    kept = answers.of(program, config)
    text = kept.recall(argv)
    if text is None:
        asked_ns = time.time_ns()
        text, said = _asked(name, argv)
        states = sources.behind(program, config, text, said, asked_ns)
        if states is not None:
            kept.keep(argv, text, states)
    return text


def _asked(name: str, argv: list[str]) -> tuple[str, str]:
    """ssh's own answer, and what it said meanwhile. Raises Unreachable."""
    words = [argv[0], "-v", *argv[1:]]
    try:
        done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise Unreachable(
            name, "OpenSSH's client is not installed here", "apt-get install openssh-client"
        ) from None
    except OSError as error:
        raise Unreachable(name, f"ssh can't be run here: {error.strerror}") from None
    if done.returncode != 0:
        lines = (line for line in done.stderr.splitlines() if not line.startswith(CHATTER))
        reason = "\n".join(lines).strip()
        raise Unreachable(name, f"ssh can't use its configuration: {reason}")
    return done.stdout, done.stderr


def _parsed(text: str, name: str) -> SshConfig:
    values: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        values.setdefault(key, []).append(value)

    def one(key: str) -> str | None:
        found = values.get(key, ["none"])[0]
        return None if found in ("none", "") else found

    port = one("port") or str(PORT)
    tokens = {"%%": "%", "%h": one("hostname") or "", "%r": one("user") or ""}
    own = {**tokens, "%d": str(Path.home()), "%u": getpass.getuser()}
    command = one("proxycommand")
    users = _paths(one("userknownhostsfile"))
    return SshConfig(
        hostname=one("hostname") or "",
        user=one("user") or "",
        port=int(port),
        identity_files=tuple(
            Path(_filled(path, own)).expanduser() for path in values.get("identityfile", [])
        ),
        identities_only=one("identitiesonly") == "yes",
        proxy_jump=one("proxyjump"),
        proxy_command=command and _filled(command, {**tokens, "%p": port, "%n": name}),
        known_hosts=(*users, *_paths(one("globalknownhostsfile"))),
        host_key_alias=one("hostkeyalias"),
        remembers_in=next(iter(users), None),
    )


def _paths(value: str | None) -> list[Path]:
    """ssh prints several paths with spaces between them, and one path with spaces just the same."""
    whole = Path(value or "").expanduser()
    if value and whole.is_file():
        return [whole]
    return [Path(word).expanduser() for word in (value or "").split()]


def _filled(text: str, tokens: dict[str, str]) -> str:
    """Put values for tokens, which ssh -G leaves as they are (ssh_config(5), TOKENS)."""
    return re.sub("%.", lambda found: tokens.get(found[0], found[0]), text)
