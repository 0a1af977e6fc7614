"""The queue of this machine: which runs of any user wait for a GPU or a port, and in which order.

A task that waits holds a lease (leases.py) per GPU and port that it waits for, whose name has the
task's place. So every user can see all places, a place ends with its supervisor, and nothing has to
be written. The order is the same on every machine: priority, time of submission, run.

A stranger can make names, too. That costs others their turn, as taking a lease does, and it shows
who it is: a name without a socket that answers does not count.
"""

from __future__ import annotations

import os
import re
import time
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

from ...shared import filesystem
from ...shared.protocol.record import Record
from ...shared.records import HIGH, NORMAL, Launch
from ..machine import leases
from ..machine.leases import Holder
from ..refusal import Refusal

SOCKETS = "/proc/net/unix"  # source: proc(5); an abstract name begins with @
ENTRY = re.compile(
    rb" @tfdeploy/queue/((?:gpu|port)/[\w-]+)/([01])\.(\d{10})\.([\w-]+)\.(\w+:\d+)$",
    re.M | re.ASCII,
)
END_LEASE = "ends/{}.{:010d}"
END = re.compile(rb" @tfdeploy/ends/(\d+)\.(\d{10})$", re.M | re.ASCII)


class Place(Record):
    """The place of a task in the queue of one GPU or port, `resource`. `rank` is 0 if the priority
    of its run is HIGH, and otherwise 1."""

    resource: str
    rank: int
    submitted: int
    run: str
    task: str

    @property
    def key(self) -> Tuple[int, int, str, str]:
        """What the places of all resources, on all machines, are ordered by."""
        return self.rank, self.submitted, self.run, self.task

    def __hash__(self) -> int:
        return hash(self.lease)

    @property
    def lease(self) -> str:
        return "queue/{}/{}.{:010d}.{}.{}".format(self.resource, *self.key)

    @property
    def priority(self) -> str:
        return NORMAL if self.rank else HIGH


def places_of(launch: Launch, priority: str) -> List[Place]:
    """Return the places of a task that waits, one for each resource."""
    key = (int(priority != HIGH), launch.turn.submitted, launch.run, launch.task)
    return [Place(resource, *key) for resource in launch.turn.waits_for]


def enter(places: Sequence[Place]) -> List[int]:
    """Take the places; return the descriptors of their leases, which end them when closed."""
    return leases.acquire([place.lease for place in places])


def all_places() -> List[Place]:
    """Return the places of all tasks that wait on this machine, first come first. Some may be names
    that a stranger has made without a socket that answers."""
    found = set(ENTRY.findall(filesystem.read_bytes(SOCKETS)))
    places = [
        Place(resource.decode(), int(rank), int(submitted), run.decode(), task.decode())
        for resource, rank, submitted, run, task in found
    ]
    return sorted(places, key=lambda place: (place.key, place.resource))


def ahead_of(own: Place, places: Iterable[Place]) -> List[Place]:
    """Return the places in the same queue before one's own, except those of the same run."""
    return [
        place
        for place in places
        if place.resource == own.resource and place.key < own.key and place.run != own.run
    ]


def is_first(own: Iterable[Place]) -> bool:
    """Return whether no other run is ahead of these places of a task."""
    waiting = all_places()
    ahead = (place for each in own for place in ahead_of(each, waiting))
    return not any(leases.is_held(place.lease) for place in ahead)


def holder(place: Place) -> Optional[Holder]:
    """Return who has a place, as far as the kernel says; None if it has just ended."""
    return leases.holder(place.lease)


def announce_end(at: float) -> List[int]:
    """Let all users see that what this process holds is free after `at`, on the monotonic clock, at
    the latest; return the descriptors that keep it visible. The time of day may be set."""
    try:
        return leases.acquire([END_LEASE.format(os.getpid(), int(at))])
    except leases.ResourceTaken:  # a stranger has made this name: nobody believes it
        return []


def seconds_left(holder: Holder) -> Optional[float]:
    """Return after which time a holder ends at the latest; None if it does not say."""
    for pid, at in END.findall(filesystem.read_bytes(SOCKETS)):
        if int(pid) == holder.pid:
            said = leases.holder(END_LEASE.format(int(pid), int(at)))
            if said and said.pid == holder.pid:
                return max(0.0, int(at) - time.monotonic())
    return None


def first_places(but_of: str = "") -> Dict[str, Place]:
    """Return the first place in the queue of each resource that a run other than `but_of` waits
    for."""
    return {each.resource: each for each in reversed(held_places()) if each.run != but_of}


def held_places() -> List[Place]:
    """Return the places that somebody has, first come first."""
    return [place for place in all_places() if leases.is_held(place.lease)]


def awaited_refusal(place: Place, title: str) -> Refusal:
    """Return the refusal of a start that would overtake the run that has this place; `title` is
    what it waits for."""
    waiting = holder(place)
    name = waiting.description if waiting else "run {}".format(place.run)
    return Refusal(
        "a run in the queue waits for {}: {}".format(title, name),
        leases.WAIT,
        held_by=place.run,
        busy=True,
    )
