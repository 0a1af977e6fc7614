"""The cipher of large transfers: AES-GCM, if the processor has instructions for AES.

OpenSSH before version 10 prefers chacha20-poly1305, which takes about twice the CPU time for a byte
on such a processor; version 10 prefers AES-GCM itself. Both are among the defaults of both.
"""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.errors import Unreachable
from tfdeploy.transport.ssh import config

if TYPE_CHECKING:
    from tfdeploy.config.inventory import Host, Inventory

FAST = ("-o", "Ciphers=^aes128-gcm@openssh.com")  # puts it before the defaults
CPU_INFO = Path("/proc/cpuinfo")


def transfer_command(host: Host, inventory: Inventory) -> list[str]:
    """Return ssh's command line for rsync, without the host's name. Ciphers that ssh's
    configuration chooses for the host stay as they are."""
    command = config.ssh_command(host, inventory)
    return [*command, *FAST] if _has_aes() and _has_default_ciphers(host, inventory) else command


@cache
def _has_aes() -> bool:
    """Return whether this machine's processor has instructions for AES, as all of Apple's have."""
    try:
        words = CPU_INFO.read_text().split()
    except OSError:
        return platform.system() == "Darwin"
    return "aes" in words


def _has_default_ciphers(host: Host, inventory: Inventory) -> bool:
    try:
        config.default_ciphers(inventory, *FAST)
        return config.ciphers(host, inventory) == config.default_ciphers(inventory)
    except Unreachable:  # ssh is older than 8.1 and refuses ^, or rsync's ssh says why
        return False
