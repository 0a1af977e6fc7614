"""A task's turn in the queue of its host (queue/places.py).

A task takes its GPUs and ports when no run is ahead of it for any of them and all of them are free,
and keeps them only while that is so: if a run with a high priority arrives, it gives them back.
The run starts once all of its tasks hold theirs. As all hosts have the same order, no two runs can
hold parts and wait for each other. A run with a host that is away lets others pass.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import List, Union

from ...shared import records
from ...shared.records import Launch, gpu_need
from .. import paths
from ..machine import gpus, leases
from ..queue import places, resources
from ..queue.places import Place
from ..refusal import Refusal
from .heartbeat.messages import ASIDE, GO
from .membership import ChiefMembership, OtherMembership

POLL_S, BEHIND_POLL_S = 5.0, 15.0  # of a task that waits for long: the first one, and others
# After which time it looks again at what another program uses: nvidia-smi is slow.
RETRY_S, MAX_RETRY_S = 1.0, 30.0


class Turn:
    """The turn of one task. `leases` are the descriptors of what it has taken, `launch` has the
    GPUs that were chosen then."""

    def __init__(
        self, launch: Launch, task_dir: str, membership: Union[ChiefMembership, OtherMembership]
    ) -> None:
        self.leases: List[int] = []
        self._holds = False  # a task that needs nothing holds it, too
        self.launch = self._launch = launch
        self._launch_file = paths.launch(task_dir)
        self._membership = membership
        self._read_at, self._priority = 0, launch.turn.priority
        self._places: List[Place] = []
        self._place_leases: List[int] = []
        self._changed_at = time.monotonic()
        self._retry_at, self._retry_s = 0.0, RETRY_S
        self._is_first = False
        self._enter_queue()

    def left_s(self) -> float:
        """Take, keep or give back what the task needs. Return the seconds until the next call, 0 if
        the run starts."""
        leases.drop_queries([*self._place_leases, *self.leases])
        held = self._holds
        if self._membership.turn(held) == ASIDE:
            if self._give_back():
                self.leave_queue()
        else:
            self._enter_queue()
            self._take_or_give_back()
        if self._holds != held:
            self._changed_at = time.monotonic()
        if self._membership.turn(self._holds) == GO and self._holds:
            return 0.0
        longest_s = POLL_S if self._is_first else BEHIND_POLL_S
        return min(longest_s, 0.05 + (time.monotonic() - self._changed_at) / 10)

    def leave_queue(self) -> None:
        leases.release(self._place_leases)
        self._places, self._place_leases = [], []

    def _enter_queue(self) -> None:
        """Take the task's places, or others if its priority has changed."""
        wanted = places.places_of(self._launch, self._membership.priority(self._own_priority()))
        if wanted == self._places:
            return
        try:
            taken = places.enter(wanted)
        except leases.ResourceTaken:  # a stranger has made such a name: try again at the next call
            return
        self.leave_queue()
        self._places, self._place_leases = wanted, taken

    def _own_priority(self) -> str:
        """Return the priority in the launch, which `tfdeploy queue` changes; the last one that was
        read if the disk fails."""
        with suppress(OSError, ValueError):
            changed_at = os.stat(self._launch_file).st_mtime_ns
            if changed_at != self._read_at:
                self._priority = records.load(Launch, self._launch_file).turn.priority
                self._read_at = changed_at
        return self._priority

    def _take_or_give_back(self) -> None:
        has_places = len(self._places) == len(self._launch.turn.waits_for)
        self._is_first = has_places and places.is_first(self._places)
        if self._holds and not self._is_first:
            self._give_back()
        elif self._is_first and not self._holds and time.monotonic() >= self._retry_at:
            self._take()

    def _take(self) -> None:
        launch = self._launch
        if not resources.are_unleased(launch):
            self._retry_s = RETRY_S  # a run that ends has soon left its GPUs
            return
        try:
            resources.require_available(launch)  # `acquire` looks again and again
            found = resources.gpus_of(launch), gpus.sick(gpu_need([launch]))
            launches, taken = resources.acquire([launch], *found)
        except Refusal:
            self._retry_at = time.monotonic() + self._retry_s
            self._retry_s = min(MAX_RETRY_S, 2 * self._retry_s)
            return
        self.launch, self.leases, self._holds = launches[0], taken[launch.task], True

    def _give_back(self) -> bool:
        """Give back what the task holds, unless the run has just started. Return whether it holds
        nothing."""
        if self._holds and self._membership.withdraws():
            leases.release(self.leases)
            self.launch, self.leases, self._holds = self._launch, [], False
        return not self._holds
