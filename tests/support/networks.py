"""Hosts on this machine with a network each, so that no host sees the leases of another one.

Leases and places of the queue are names in a network namespace: on one network, all hosts of a test
would share them. Needs root and iproute2.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Network(NamedTuple):
    """The namespace of a host, and the address at which this machine and other hosts reach it."""

    namespace: str
    address: str

    def enter(self, *command: object) -> list[object]:
        """Return a command that runs in the namespace, as the same process."""
        return ["ip", "netns", "exec", self.namespace, *command]


def are_possible() -> bool:
    return os.geteuid() == 0 and shutil.which("ip") is not None


@contextmanager
def networks(count: int) -> Iterator[list[Network]]:
    """Yield the networks of some hosts, which a switch connects.

    The switch has a namespace, too, so a packet filter of this machine does not apply to it.
    """
    switch, subnet = f"tf{secrets.token_hex(3)}", f"10.{_part(200)}.{_part(0)}"
    hosts = [Network(f"{switch}-{n}", f"{subnet}.{n + 2}") for n in range(count)]
    namespaces = [switch, *(host.namespace for host in hosts)]
    try:
        _ip(f"netns add {name}" for name in namespaces)
        _ip(_links(switch, hosts))
        _ip([f"addr add {subnet}.1/24 dev {switch}", f"link set {switch} up"])
        _ip(["link add br0 type bridge", "link set br0 up", *_ports(count)], switch)
        for host in hosts:
            own = (f"addr add {host.address}/24 dev eth0", "link set eth0 up", "link set lo up")
            _ip(own, host.namespace)
        yield hosts
    finally:
        for name in namespaces:
            subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)


def _links(switch: str, hosts: list[Network]) -> Iterator[str]:
    yield f"link add {switch} type veth peer name out netns {switch}"
    for number, host in enumerate(hosts):
        peer = f"peer name eth0 netns {host.namespace}"
        yield f"link add h{number} netns {switch} type veth {peer}"


def _ports(count: int) -> Iterator[str]:
    for name in ("out", *(f"h{number}" for number in range(count))):
        yield f"link set {name} master br0 up"


def _part(lowest: int) -> int:
    return random.randrange(lowest, 255)


def _ip(commands: Iterable[str], namespace: str = "") -> None:
    inside = ["-n", namespace] if namespace else []
    subprocess.run(["ip", *inside, "-batch", "-"], input="\n".join(commands), text=True, check=True)
