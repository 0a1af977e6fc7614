"""Choose between Fabric and OpenSSH for a host, by what ssh's configuration asks for.

Fabric is faster and the usual choice. Paramiko, on which it is built, lacks what is listed here.
"""

from __future__ import annotations

import base64
import binascii
import functools
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.transport.openssh import master
from tfdeploy.transport.ssh import config, known_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdeploy.config.inventory import Host, Inventory
    from tfdeploy.transport.ssh.config import SshConfig

    Settings = dict[str, list[str]]

OPEN_MASTER = "an open master at its ControlPath"
FORCED = 'transport = "openssh" in hosts.toml'
# The algorithms of Paramiko 5; a test compares them with the installed version.
PARAMIKO = {
    "ciphers": (
        *("aes128-ctr", "aes192-ctr", "aes256-ctr", "aes128-cbc", "aes192-cbc", "aes256-cbc"),
        *("3des-cbc", "aes128-gcm@openssh.com", "aes256-gcm@openssh.com"),
    ),
    "macs": (
        *("hmac-sha2-256", "hmac-sha2-512", "hmac-sha2-256-etm@openssh.com"),
        *("hmac-sha2-512-etm@openssh.com", "hmac-sha1", "hmac-md5", "hmac-sha1-96", "hmac-md5-96"),
    ),
    "kexalgorithms": (
        *("mlkem768x25519-sha256", "curve25519-sha256@libssh.org", "ecdh-sha2-nistp256"),
        *("ecdh-sha2-nistp384", "ecdh-sha2-nistp521", "diffie-hellman-group16-sha512"),
        *("diffie-hellman-group-exchange-sha256", "diffie-hellman-group14-sha256"),
    ),
    "hostkeyalgorithms": (
        *("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"),
        *("rsa-sha2-512", "rsa-sha2-256"),
    ),
}
PARAMIKO["pubkeyacceptedalgorithms"] = PARAMIKO["hostkeyalgorithms"]
# Keywords, and the values with which Fabric does what ssh does; "" is a keyword that is not set.
PLAIN_VALUES = {
    "CertificateFile": (),
    "IdentityAgent": ("SSH_AUTH_SOCK",),
    "HostbasedAuthentication": ("no",),
    "PKCS11Provider": ("none",),
    "SecurityKeyProvider": ("internal",),
    "PubkeyAuthentication": ("true", "yes", "unbound", "host-bound"),
    "KnownHostsCommand": ("none",),
    "RevokedHostKeys": ("none",),
    "VerifyHostKeyDNS": ("false", "no"),
    "StrictHostKeyChecking": ("ask", "true", "yes"),
    "AddressFamily": ("any",),
    "BindAddress": (),
    "BindInterface": (),
}
KEY_TEXT = re.compile(rb"-----BEGIN OPENSSH PRIVATE KEY-----(.*?)-----END", re.DOTALL)
KEY_TYPE = re.compile(rb"sk-(ssh-ed25519|ecdsa-sha2-nistp256)@openssh\.com")
TICKET_S = 2.0  # how long the answer about a Kerberos ticket stays valid


def why_openssh(host: Host, inventory: Inventory) -> str:
    """Return why OpenSSH connects to a host, for example "CertificateFile in ssh's configuration";
    "" if Fabric does. Raises Unreachable if ssh refuses its configuration."""
    if host.transport != "ssh":
        return FORCED if host.transport == "openssh" else ""
    found = config.resolve(host, inventory)
    reason = next(_reasons(config.settings(config.answer(host, inventory)), found), "")
    if not reason and has_users_master(host, inventory):
        reason = OPEN_MASTER
    return reason or _why_jumps(found, inventory) or _why_remembered(host, inventory)


def has_users_master(host: Host, inventory: Inventory) -> bool:
    """Return whether the user has opened a master of his own to a host. Raises Unreachable."""
    command = [*config.users_command(host, inventory), "-O", "check", "--", host.name]
    return _has_master(config.settings(config.answer(host, inventory)), command)


def _why_jumps(found: SshConfig, inventory: Inventory) -> str:
    jumps = found.proxy_jump.split(",") if found.proxy_jump else []
    for number, jump in enumerate(jumps):
        name = jump.removeprefix("ssh://")
        if reason := _why_jump(name, inventory, is_first=number == 0):
            return f"for the jump host {name}, {reason}"
    return ""


def _why_jump(name: str, inventory: Inventory, *, is_first: bool) -> str:
    """Return why Fabric can't connect through a jump host. It connects to the first one directly,
    whatever that one's own settings say."""
    values = config.settings(config.answer_for_jump(name, inventory))
    through = [key for key in ("ProxyJump", "ProxyCommand") if _is_set(values, key)]
    if is_first and through:
        return f"its own {through[0]}"
    if _has_master(values, [*config.jump_command(inventory), "-O", "check", f"ssh://{name}"]):
        return OPEN_MASTER
    return next(_reasons(values, config.resolve_jump(name, inventory)), "")


def _is_set(values: Settings, keyword: str) -> bool:
    return values.get(keyword.lower(), ["none"]) != ["none"]


def _why_remembered(host: Host, inventory: Inventory) -> str:
    if master.find_users(host, inventory).was_refused_by_fabric:
        return "it refused Fabric's login, and ssh's succeeded"
    return ""


def _reasons(values: Settings, found: SshConfig) -> Iterator[str]:
    """Yield what Fabric can't do of the settings of one machine."""
    for keyword, plain in PLAIN_VALUES.items():
        for value in values.get(keyword.lower(), ()):
            if value not in plain and not _is_agents_variable(keyword, value):
                yield f"{keyword} {value} in ssh's configuration"
    yield from _missing_algorithms(values)
    methods = values.get("preferredauthentications", ["publickey"])[0]
    if not methods.startswith("publickey"):
        yield f"PreferredAuthentications {methods} in ssh's configuration"
    if values.get("gssapiauthentication") == ["yes"] and _has_ticket(config.period(TICKET_S)):
        yield "GSSAPIAuthentication in ssh's configuration, and there is a Kerberos ticket"
    keys = (key for key in found.identity_files if _is_security_key(key, _modified(key)))
    yield from (f"the key {key} is on a security key" for key in keys)
    if known_hosts.has_authority(found.known_hosts, found.known_names):
        yield "a certificate authority for it in known_hosts"


def _is_agents_variable(keyword: str, value: str) -> bool:
    """Return whether an IdentityAgent is the agent that Fabric asks, too."""
    return keyword == "IdentityAgent" and value == os.environ.get("SSH_AUTH_SOCK")


def _missing_algorithms(values: Settings) -> Iterator[str]:
    for keyword, supported in PARAMIKO.items():
        allowed = values.get(keyword, [""])[0]
        if allowed and not set(allowed.split(",")) & set(supported):
            yield f"{keyword} in ssh's configuration has none of Paramiko's"


def _has_master(values: Settings, check: list[str]) -> bool:
    """Return whether a master listens at the ControlPath; `check` asks it."""
    path = values.get("controlpath", ["none"])[0]
    may_exist = "%" in path or Path(path).exists()  # old versions of ssh print %C
    return path != "none" and may_exist and _succeeds(check)


@functools.lru_cache(maxsize=1)
def _has_ticket(_: int) -> bool:
    klist = shutil.which("klist")
    return klist is not None and _succeeds([klist, "-s"])


def _succeeds(argv: list[str]) -> bool:
    """Return whether a command ends well, and soon: a master that hangs gives no answer."""
    null = subprocess.DEVNULL
    try:
        done = subprocess.run(
            argv, stdin=null, stdout=null, stderr=null, timeout=master.ANSWER_TIMEOUT_S
        )
        return done.returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _modified(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


@functools.lru_cache(maxsize=64)
def _is_security_key(file: Path, modified: int) -> bool:
    """Return whether a file has the handle of a key that is on a security key. Its type is readable
    even if the handle is encrypted (PROTOCOL.key of OpenSSH)."""
    try:
        found = KEY_TEXT.search(file.read_bytes()) if modified else None
        return bool(found and KEY_TYPE.search(base64.b64decode(found[1])))
    except (OSError, binascii.Error):
        return False
