"""A supervisor's part in its run: what it tells the others, and what it must do because of them."""

from __future__ import annotations

import signal
import time

from . import TYPE_CHECKING, fate, replicas
from .circle import Asker, Beacon

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Optional, Union

    from .fate import Order
    from .records import Launch, TaskState

    State = Callable[[], TaskState]

TICK_S = 0.25
LAST_WORD_S = 60.0


def join(launch: Launch, task_dir: str, state: State) -> Union["Chief", "Other"]:
    """Take part, as the chief or as one of the others. Raises OSError where the port is taken."""
    if launch.is_chief:
        return Chief(launch, task_dir, state)
    return Other(launch, state)


class Chief:
    """Whose end is the run's: it tells all the others, and goes when they have heard it."""

    def __init__(self, launch: Launch, task_dir: str, state: State) -> None:
        self._launch = launch
        self._state = state
        self._began = time.monotonic()
        self._offer = replicas.Offer(launch, task_dir)
        self._beacon = Beacon(launch.circle, self._offer.read)
        self._offer.begin(self._beacon)

    def changed(self) -> None:
        """Who asks next will hear it."""

    def has_ended(self) -> bool:
        return False

    def order(self) -> Optional[Order]:
        now = time.monotonic()
        heard = {
            task: (now - heard.at, heard.state, heard.reason)
            for task, heard in self._beacon.heard.items()
        }
        return fate.of_chief(self._launch, heard, now - self._began)

    def leave(self) -> None:
        """Tell how it ended, until every other task has said that it ended too, or for as long as
        one may be silent, or until we are stopped."""
        state, since = self._state(), time.monotonic()
        self._beacon.ended = {"state": state.state, "reason": state.reason}
        patience_s = self._launch.circle.orphan_timeout_s
        while self._beacon.going() and time.monotonic() < since + patience_s:
            if signal.sigtimedwait((signal.SIGTERM,), TICK_S):
                break

    def close(self) -> None:
        self._offer.close()
        self._beacon.close()


class Other:
    """A task that is there for the chief's sake."""

    def __init__(self, launch: Launch, state: State) -> None:
        self._launch = launch
        self._state = state
        self._asker = Asker(launch.circle, self._report)
        replicas.begin(launch, self._asker)

    def changed(self) -> None:
        self._asker.hurry()

    def has_ended(self) -> bool:
        return self._asker.ended_at is not None

    def order(self) -> Optional[Order]:
        now, asker = time.monotonic(), self._asker
        ended_s = None if asker.ended_at is None else now - asker.ended_at
        return fate.of_other(self._launch, asker.told, now - asker.heard_at, ended_s)

    def leave(self) -> None:
        """The last word: how we ended. Said again for a while: where tasks fail, networks do."""
        deadline = time.monotonic() + LAST_WORD_S
        while self._asker.said != self._report() and time.monotonic() < deadline:
            if not self._asker.say() and signal.sigtimedwait((signal.SIGTERM,), 1.0):
                break

    def close(self) -> None:
        """The thread that asks ends with its process."""

    def _report(self) -> Dict[str, Any]:
        state = self._state()
        return {"task": self._launch.task, "state": state.state, "reason": state.reason}
