"""The network interfaces of this host: their addresses, and how fast their cards run."""

from __future__ import annotations

import fcntl
import socket
import struct
from typing import Iterator, Optional, Tuple

SIOCGIFADDR = 0x8915  # netdevice(7)
GLOBAL = "00"  # the scope of an IPv6 address in /proc/net/if_inet6


def addresses() -> Iterator[Tuple[str, str]]:
    """Yield each address of this host except loopback, IPv4 first, with its interface's name."""
    yield from _ipv4_addresses()
    yield from _ipv6_addresses()


def with_address(address: str) -> str:
    """Return the name of the interface that has an address; "" for loopback, or if none has."""
    return dict(addresses()).get(address, "")


def megabits_per_s(name: str) -> Optional[int]:
    """Return the speed at which a card runs, as it agreed with the switch; None if it reports none,
    as loopback and Wi-Fi. Source: Documentation/ABI/testing/sysfs-class-net, speed."""
    try:
        with open("/sys/class/net/{}/speed".format(name)) as file:
            speed = int(file.read())
    except (OSError, ValueError):
        return None
    return speed if speed > 0 else None


def _ipv4_addresses() -> Iterator[Tuple[str, str]]:
    """Yield the IPv4 address of each interface except loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, request)
            except OSError:  # it has none
                continue
            address = socket.inet_ntoa(answer[20:24])
            if not address.startswith("127."):
                yield address, name


def _ipv6_addresses() -> Iterator[Tuple[str, str]]:
    """Yield the global IPv6 addresses of all interfaces. Source: proc(5), /proc/net/if_inet6."""
    try:
        with open("/proc/net/if_inet6") as table:
            rows = [line.split() for line in table]
    except OSError:  # the kernel has no IPv6
        return
    for address, _, _, scope, _, name in rows:
        if scope == GLOBAL:
            yield socket.inet_ntop(socket.AF_INET6, bytes.fromhex(address)), name
