"""Successive halving: which trials end early because others are better. Pure.

At its 1st, 3rd, 9th … value of the objective, only a trial among the best third of those that have
come so far goes on (ASHA, Li et al. 2020, arXiv 1810.05934, as a rule for stopping).
"""

from __future__ import annotations

from typing import Dict, List, Optional

from ....shared.records import TrialSettings
from ....shared.trials import TrialRecord

FACTOR = 3
MAX_RUNGS = 20  # a host may lie


class Halving:
    """Judges the trials of a run by the values at each rung, which grow with every trial."""

    def __init__(self, settings: TrialSettings) -> None:
        self._is_on = settings.stop_bad
        self._sign = 1.0 if settings.mode == "max" else -1.0
        self._rungs: List[Dict[int, float]] = []
        self._stops: Dict[str, str] = {}  # by trial and attempt

    def judge(self, trial: TrialRecord) -> str:
        """Return why the trial ends early, or "". Each trial is judged once at each rung."""
        attempt = "{} {}".format(trial.trial, trial.attempt)
        for rung, value in enumerate(trial.rungs[:MAX_RUNGS] if self._is_on else ()):
            reason = self._reach(rung, trial.trial, value)
            if reason:
                self._stops.setdefault(attempt, reason)
        return self._stops.get(attempt, "")

    def _reach(self, rung: int, trial: int, value: Optional[float]) -> str:
        if rung == len(self._rungs):
            self._rungs.append({})
        values = self._rungs[rung]
        if trial in values:
            return ""
        own = values[trial] = float("-inf") if value is None else self._sign * value
        better = sum(other > own for other in values.values())
        if len(values) < FACTOR or better < len(values) // FACTOR:
            return ""
        return "{} of {} trials were better at value {}".format(better, len(values), FACTOR**rung)
