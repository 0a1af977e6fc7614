"""Must this task end because of what happened elsewhere in its run? Pure: clocks are arguments."""

from __future__ import annotations

from dataclasses import dataclass

from . import TYPE_CHECKING
from .records import FAILED, STOPPED, SUCCEEDED, Launch

if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Tuple

# By now a worker has ended by itself, or won't; a ps has to outlive the workers (see stop.py).
PS_MARGIN_S = 3.0


@dataclass(frozen=True)
class Order:
    """End the task. `state` is what it comes to: STOPPED, FAILED, or BACKOFF where it may be begun
    again; `cause` names the other task that is to blame, if one is."""

    why: str
    state: str = STOPPED
    cause: str = ""


def of_chief(
    launch: Launch, heard: Mapping[str, Tuple[float, str, str]], age_s: float
) -> Optional[Order]:
    """`heard` has for each other task (seconds of silence, its state, its reason); `age_s` is how
    long the run has lasted."""
    for task in launch.circle.needed:
        silent_s, state, reason = heard[task]
        if state == FAILED:
            return Order("{} failed: {}".format(task, reason), FAILED, task)
        if state == STOPPED:
            return Order("{} was stopped: {}".format(task, reason), STOPPED, task)
        # One that has done its part and left is not missed.
        if state != SUCCEEDED and silent_s > launch.circle.orphan_timeout_s:
            why = "nothing was heard of {} for {:.0f} s".format(task, silent_s)
            return Order(why, FAILED, task)
    if launch.max_duration_s is not None and age_s > launch.max_duration_s:
        return Order("max_duration_s, {:g} s, is over".format(launch.max_duration_s))
    return None


def of_other(
    launch: Launch, told: Dict[str, Any], silent_s: float, ended_s: Optional[float]
) -> Optional[Order]:
    """`told` is what the chief's supervisor said last, `silent_s` seconds ago; `ended_s` how long
    ago it first said that the run has ended, None before."""
    chief = launch.circle.chief
    if ended_s is not None:
        if ended_s < _patience_s(launch, told):
            return None
        return Order("the run has ended: {} {}".format(chief, _word(told["ended"]["state"])))
    if silent_s > launch.circle.orphan_timeout_s:
        return Order("nothing was heard of {} for {:.0f} s".format(chief, silent_s), cause=chief)
    return None


def _patience_s(launch: Launch, told: Dict[str, Any]) -> float:
    """How long this task may go on after the run has ended."""
    if launch.job == "ps":
        return launch.linger_s + PS_MARGIN_S if _dials_on(told["going"]) else 0.0
    return launch.linger_s if told["ended"]["state"] == SUCCEEDED else 0.0


def _dials_on(going: List[str]) -> bool:
    """A worker whose ps is gone ignores SIGTERM for most of a minute: the ps waits for it."""
    return any(not task.startswith(("ps:", "evaluator:")) for task in going)


def _word(state: str) -> str:
    return state.lower() if state in (SUCCEEDED, FAILED) else "was stopped"
