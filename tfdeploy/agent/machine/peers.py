"""The addresses from which other hosts may connect to a task, for inside/preload/sockets.c.

Each address in hosts.toml is resolved here, as TensorFlow does. A host may connect from another
address than that: one with two networks, or one behind NAT. Then its supervisor reports that
address, signed with its task's secret. What another host reports is never resolved.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from contextlib import suppress
from typing import Iterable, List, Optional, Sequence, Set, Tuple

from ...shared import filesystem, parallel
from . import listeners, process

RESOLVE_S = 2.0  # a start does not wait longer for slow name servers
MAX_THREADS = 16
HIGHEST_PORT = 65_535
MAX_REPORTED = 64  # sources for each of the run's hosts: a lying host can't fill the list


class PeerList:
    """The list of one task in `file`, for the run's hosts `names`: names or addresses.

    With `ports`, from the first to the last of which the task connects to others, the list has the
    addresses of other hosts only with the ports of their tasks, as their supervisors report them.
    """

    def __init__(
        self, file: str, names: Sequence[str], ports: Optional[Tuple[int, int]] = None
    ) -> None:
        self._file = file
        self._names = names
        self._ports = ports
        self._judged: Set[str] = set()  # all that were given to `add`
        self._listed: Set[str] = set()
        self._sources: Set[str] = set()
        self._lock = threading.Lock()
        self._write()

    def resolve(self) -> None:
        """Add the addresses of all names. Slow ones are added later, by a thread.

        What is an address already is added without one: each thread costs as much as ten of them.
        """
        self._admit([name for name in self._names if as_address(name) == name])
        names = [name for name in self._names if as_address(name) != name]
        if names:
            thread = threading.Thread(target=self._resolve, args=(names,), daemon=True)
            thread.start()
            thread.join(RESOLVE_S)

    def add(self, sources: Iterable[str]) -> None:
        """Add sources, except this host's own: on it, the user decides. No name is resolved."""
        with self._lock:
            new = set(sources) - self._judged
            if len(self._judged) + len(new) > MAX_REPORTED * (len(self._names) + 1):
                return
            self._judged |= new
            found = [source for source in map(as_source, new) if self._is_needed(source)]
            remote = {source for source in found if not _is_local(source.partition(" ")[0])}
            if remote:
                self._listed |= remote
                self._write()

    def sources(self) -> List[str]:
        """Return from where this host's task connects to the others."""
        ports = " {} {}".format(*self._ports) if self._ports else ""
        return sorted(address + ports for address in self._sources)

    def _is_needed(self, source: str) -> bool:
        return " " in source if self._ports else bool(source)

    def _resolve(self, names: List[str]) -> None:
        found = parallel.each(_resolve_name, names, MAX_THREADS)
        self._admit([address for addresses in found for address in addresses])

    def _admit(self, addresses: List[str]) -> None:
        """Add addresses of the run's hosts, and this host's own towards them, with one write."""
        if not self._ports:
            self.add(addresses)
        self._sources = self._sources.union(*map(_source_towards, addresses))

    def _write(self) -> None:
        text = "".join(address + "\n" for address in sorted(self._listed))
        try:
            filesystem.replace_file(self._file, text.encode())
        except OSError as error:  # training continues even if the disk is full
            with suppress(OSError):  # on the same disk
                print("{}: {}".format(self._file, os.strerror(error.errno or 0)), file=sys.stderr)


def plain(address: str) -> str:
    """Return an address as the list has it: IPv4 without the prefix of IPv6, and no interface."""
    return address.replace("::ffff:", "", 1).partition("%")[0]


def as_address(text: str) -> str:
    """Return an address as the list has it, "" for any other text.

    (inet_ntop is what the library uses; importing the module ipaddress costs a start 1.5 ms.)
    """
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            packed = socket.inet_pton(family, text.partition("%")[0])
            return plain(socket.inet_ntop(family, packed))
        except (OSError, ValueError):  # of the other family, or no address
            continue
    return ""


def as_source(text: str) -> str:
    """Return a source as the list has it: an address, or one with its first and its last port; ""
    for any other text."""
    address, _, ports = text.partition(" ")
    found = as_address(address)
    if not found or not ports:
        return found
    numbers = [int(word) for word in ports.split(" ") if word.isdecimal() and len(word) <= 5]
    if len(numbers) != 2 or not 0 < numbers[0] <= numbers[1] <= HIGHEST_PORT:
        return ""
    return "{} {} {}".format(found, *numbers)


def _resolve_name(name: str) -> List[str]:
    try:
        found = socket.getaddrinfo(name.encode(), None, 0, socket.SOCK_STREAM)
    except OSError:  # that host has no task that could connect, or proves itself later
        return []
    return [plain(str(address[0])) for _, _, _, _, address in found]


def _source_towards(address: str) -> Set[str]:
    """Return the address of this host from which it connects to another one, if there is a way.

    Connecting a UDP socket chooses the address, and sends nothing. Source: ip(7).
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            return {plain(probe.getsockname()[0])}
    except OSError:
        return set()


def refusing_user(address: str, port: int) -> str:
    """Return the name of the other user of this host whose task listens on a port; "" if there is
    none. The guard of such a task refuses this user's processes, unless this user is root."""
    if os.geteuid() == 0 or not any(map(_is_local, _resolve_name(address))):
        return ""
    users = {user for user, _ in listeners.of_port(port)}
    return process.user_name(min(users)) if users and os.geteuid() not in users else ""


def _is_local(address: str) -> bool:
    """Return whether an address is this host's own: a socket can be bound to no other."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True
