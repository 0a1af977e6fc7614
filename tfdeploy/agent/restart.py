"""Is a task that ended begun again, when, and why? Pure: a replayed history gives the same."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from . import TYPE_CHECKING
from .records import BACKOFF, FAILED, STOPPED, SUCCEEDED, Policy

if TYPE_CHECKING:
    from typing import List, Optional, Sequence

# A shell tells a signal's death as 128 + its number.
SHELL_SIGNALS = range(129, 193)


@dataclass(frozen=True)
class Attempt:
    """One life of the task's process. `began` is in seconds of a clock that never steps; `ready`
    says whether it ever answered as this task, or, without a port, lived for a while."""

    began: float
    ready: bool


@dataclass(frozen=True)
class Exit:
    """How an attempt ended. `code` is negative for a signal. `stopped` says that it was asked for,
    `why` what we know beyond the code (that it was FROZEN, say), `final` that no restart helps."""

    code: int
    stopped: bool = False
    why: str = ""
    final: bool = False


@dataclass(frozen=True)
class Decision:
    """The task's next state, for BACKOFF the seconds until it is begun again, and why in words."""

    state: str
    delay_s: float
    reason: str


def decide(
    policy: Policy, history: Sequence[Attempt], ended: Exit, now: float, chance: float
) -> Decision:
    """What follows on the end of the last of `history`, at `now` on the clock of the attempts.

    `chance`, from 0 to 1, is the jitter: tasks that fell together don't come back together.
    """
    if ended.stopped:
        return Decision(STOPPED, 0.0, "{}, {}".format(ended.why, named(ended.code)))
    said = ended.why or named(ended.code)
    if ended.code == 0 and not ended.why:
        return Decision(SUCCEEDED, 0.0, said)
    refused = _refusal(policy, history, ended, now)
    if refused is not None:
        return Decision(FAILED, 0.0, said + refused)
    nth = _restarts_within(policy.window_s, history, now) + 1
    delay_s = _delay_s(policy, nth, chance)
    reason = "{}; restart {} of {}".format(said, nth, policy.attempts)
    return Decision(BACKOFF, delay_s, reason)


def named(exit_code: int) -> str:
    """`exit 1`, or `killed by SIGKILL` for Popen's negative codes."""
    if exit_code >= 0:
        return "exit {}".format(exit_code)
    return "killed by {}".format(_signal_name(-exit_code))


def _refusal(policy: Policy, history: Sequence[Attempt], ended: Exit, now: float) -> Optional[str]:
    """Why it isn't begun again, as the end of a sentence; None where it is."""
    if ended.final:
        return ""
    if not any(attempt.ready for attempt in history):
        return "" if ended.why else ", before it was ever READY"
    if not ended.why and not _is_retried(policy.exits, ended.code):
        return ", which isn't retried"
    if policy.attempts == 0:
        return ""
    if _restarts_within(policy.window_s, history, now) >= policy.attempts:
        return "; all {} restarts within {:g} s are used up".format(
            policy.attempts, policy.window_s
        )
    return None


def _is_retried(exits: Sequence[object], code: int) -> bool:
    number = -code if code < 0 else code - 128 if code in SHELL_SIGNALS else None
    if code in exits:
        return True
    return number is not None and ("signals" in exits or _signal_name(number) in exits)


def _restarts_within(window_s: float, history: Sequence[Attempt], now: float) -> int:
    """The first attempt is a start, each further one a restart."""
    return sum(attempt.began > now - window_s for attempt in history[1:])


def _delay_s(policy: Policy, nth: int, chance: float) -> float:
    """Doubling from delay_s up to max_delay_s, of which the jitter takes away up to a half."""
    full = min(policy.max_delay_s, policy.delay_s * 2.0 ** min(nth - 1, 60))
    return full * (1.0 - chance / 2)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal {}".format(number)


def readied(history: Sequence[Attempt]) -> List[Attempt]:
    """The history with its last attempt READY."""
    return [*history[:-1], Attempt(history[-1].began, ready=True)]
