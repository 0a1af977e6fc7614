"""Decide whether a task must end because of other tasks of its run. Pure: clocks are arguments."""

from __future__ import annotations

from typing import List, Mapping, Optional, Tuple

from ...shared.outcome import DURATION_KEY, IDLE_KEY, NOT_RESTARTED_ALONE, RUN_ENDED, past_tense
from ...shared.protocol.record import Record
from ...shared.records import FAILED, STOPPED, SUCCEEDED, Launch, is_trainer
from ..machine.leases import format_age
from .heartbeat.messages import Answer, End

# After this time a worker has ended by itself, or will not. A ps must outlive the workers (see
# runs/stop.py).
PS_MARGIN_S = 3.0
# No supervisor listens again once it was killed. A firewall that is loaded again refuses for less.
REFUSED_S = 60.0
IDLE = "its GPUs were idle for {} (" + IDLE_KEY + ")"


class Order(Record):
    """An order to end the task.

    `state` is its next state: STOPPED, FAILED, or BACKOFF if it may be restarted. `cause` names the
    other task that is the root cause, if any. `planned` is True for max_duration_s, `stops_run` for
    the command that stops all tasks of the run, `silent` if nobody is notified of that end: a
    start that failed, or a resume, stops them.
    """

    reason: str
    state: str = STOPPED
    cause: str = ""
    planned: bool = False
    stops_run: bool = False
    silent: bool = False


def reported_stop(task: str, silent: bool) -> Order:
    """Return the order for the chief after a task reported that the run is being stopped."""
    return Order("the run was stopped, as {} reported".format(task), silent=silent)


def chief_order(
    launch: Launch,
    reports: Mapping[str, Tuple[float, str, str]],
    age_s: float,
    idle_s: float = 0.0,
) -> Optional[Order]:
    """Return the order for the chief, or None while it may continue.

    `reports` has (seconds of silence, state, reason) for each other task. `age_s` is the age of the
    run, `idle_s` for how long all of its GPUs have been idle.
    """
    for task in launch.heartbeat.needed:
        silent_s, state, reason = reports[task]
        # After one of the tasks that train in step has succeeded, the chief may do what is left
        # alone, such as saving. If it needs the lost task, it fails itself.
        if state == FAILED and NOT_RESTARTED_ALONE not in reason:
            return Order("{} failed: {}".format(task, reason), FAILED, task)
        if state == STOPPED:
            return Order("{} was stopped: {}".format(task, reason), STOPPED, task)
        # A task that has ended sends nothing more.
        if state not in (SUCCEEDED, FAILED) and silent_s > launch.heartbeat.orphan_timeout_s:
            return Order("no message from {} for {:.0f} s".format(task, silent_s), FAILED, task)
    if launch.limits.idle_gpu_stop_s is not None and idle_s >= launch.limits.idle_gpu_stop_s:
        return Order(IDLE.format(format_age(launch.limits.idle_gpu_stop_s)))
    return _duration_order(launch, age_s)


def _duration_order(launch: Launch, age_s: float) -> Optional[Order]:
    if launch.limits.max_duration_s is None or age_s <= launch.limits.max_duration_s:
        return None
    return Order(
        "{} ({:g} s) has passed".format(DURATION_KEY, launch.limits.max_duration_s), planned=True
    )


def other_order(
    launch: Launch,
    answer: Answer,
    silent_s: float,
    ended_s: Optional[float],
    age_s: float = 0.0,
    refused_s: float = 0.0,
) -> Optional[Order]:
    """Return the order for a task other than the chief, or None while it may continue.

    `answer` is the last answer of the chief's supervisor, `silent_s` seconds ago. `ended_s` is how
    long ago it first answered that the chief has ended; None before that. `age_s` is the age of the
    run, `refused_s` for how long the chief's host has refused connections.
    """
    chief = launch.heartbeat.chief
    if ended_s is not None and answer.ended:
        has_succeeded = answer.ended.state == SUCCEEDED
        grace_s = _grace_s(launch, answer.unfinished, has_succeeded=has_succeeded)
        # The chief's supervisor stays while it hears a worker. A ps never ends by itself.
        is_alone = launch.job == "ps" and silent_s > launch.heartbeat.orphan_timeout_s
        if (grace_s is None or ended_s < grace_s) and not is_alone:
            return _duration_order(launch, age_s) if has_succeeded else None
        return end_order(chief, answer.ended)
    is_gone = refused_s > REFUSED_S
    if is_gone or silent_s > launch.heartbeat.orphan_timeout_s:
        why = ": its supervisor is gone" if is_gone else ""
        return Order("no message from {} for {:.0f} s{}".format(chief, silent_s, why), cause=chief)
    return None


def end_order(chief: str, ended: End) -> Order:
    """Return the order for a task that does not continue after the chief's end."""
    return Order(RUN_ENDED.format(chief, past_tense(ended.state)))


def _grace_s(launch: Launch, unfinished: List[str], *, has_succeeded: bool) -> Optional[float]:
    """Return how many seconds this task may continue after the chief's end; None for no limit."""
    if launch.job != "ps":
        return launch.limits.linger_s if has_succeeded else 0.0
    if not _uses_ps(unfinished):
        return 0.0
    if launch.limits.linger_s is None:
        return None if has_succeeded else PS_MARGIN_S
    return launch.limits.linger_s + PS_MARGIN_S


def _uses_ps(unfinished: List[str]) -> bool:
    """Return whether any unfinished task connects to a ps.

    A worker without its ps ignores SIGTERM for most of a minute, so the ps waits for it.
    """
    return any(map(is_trainer, unfinished))
