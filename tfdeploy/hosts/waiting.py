"""Report the outcomes of the hosts that have answered while the others are waited for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfdeploy.errors import TfdeployError

R = TypeVar("R")
QUIET_S = 1.0  # without a new outcome, the rest is waited for


class Waiting(Generic[R]):
    """The outcomes so far. One thread calls `check`, any thread `add`."""

    def __init__(self, on_wait: Callable[[Mapping[str, R | TfdeployError]], None]) -> None:
        self._on_wait = on_wait
        self._outcomes: dict[str, R | TfdeployError] = {}
        self._reported = 0
        self._last_s = time.monotonic()

    def add(self, host: str, outcome: R | TfdeployError) -> None:
        self._last_s = time.monotonic()
        self._outcomes[host] = outcome

    def check(self) -> None:
        """Call `on_wait` with the outcomes so far if there are new ones, and none came for a
        while."""
        is_quiet = time.monotonic() - self._last_s > QUIET_S
        if is_quiet and len(self._outcomes) > self._reported:
            outcomes = self._outcomes.copy()  # another thread may add one
            self._reported = len(outcomes)
            self._on_wait(outcomes)
