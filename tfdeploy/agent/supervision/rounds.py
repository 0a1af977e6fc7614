"""The joint starts of tasks that meet: PyTorch's and JAX's processes take no lost one in again.

The others may notice the loss, or wait for the lost process without end: NCCL for ten minutes, Gloo
sometimes for thirty. So when one has to be restarted, all are, in the run's next round.
"""

from __future__ import annotations

from typing import Optional

from ...shared.records import BACKOFF, Launch
from .termination import Order

LOST = "{} was lost, and all start again together"


class Rounds:
    """What one task knows of the rounds: the `newest`, which the loss of the task `lost` started,
    and the newest that its own loss has `started`. The first start of all is round 0."""

    def __init__(self, launch: Launch) -> None:
        self.newest, self.lost, self.started = 0, "", 0
        self._task = launch.task
        self._meets = launch.endpoint.master_port is not None
        self._own = 0  # the round of the task's current attempt

    def note(self, number: int, lost: str) -> None:
        """Note a round that the loss of a task has started."""
        if number > self.newest:
            self.newest, self.lost = number, lost

    def start_attempt(self) -> None:
        """Count the attempt that starts now to the newest round."""
        self._own = self.newest

    def lose_attempt(self) -> None:
        """Start the next round, because the current attempt has met others and has ended. Losses
        of the same round start the same one."""
        if self._meets:
            self.started = self._own + 1
            self.note(self.started, self._task)

    def order(self) -> Optional[Order]:
        """Return the order to end the current attempt, if there is a newer round."""
        if not self._meets or self._own >= self.newest:
            return None
        return Order(LOST.format(self.lost), BACKOFF)
