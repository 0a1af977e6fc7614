"""How a run ended: one value for `run`, `attach`, `watch`, `status`, `runs`, `report`, the summary
of [notify] and the exit codes. Pure."""

from __future__ import annotations

import signal
from typing import Dict, Literal, Mapping, Optional, Sequence, Union

from .protocol.record import Record
from .records import ENDED, FAILED, LOST, SUCCEEDED, TaskReport, TaskState

Ended = Union[TaskReport, TaskState]
# "ended": by max_duration_s; "stopped": by a command, or because its GPUs were idle; "lost": its
# chief, or a task that the chief needs, is gone; "unknown": no host knows how its chief ended.
Result = Literal["succeeded", "ended", "stopped", "lost", "failed", "unknown"]
RunResult = Literal["running", "succeeded", "ended", "stopped", "lost", "failed", "unknown"]
RUNNING: RunResult = "running"


# The reasons of tasks that these settings have ended have their names.
DURATION_KEY, IDLE_KEY = "max_duration_s", "idle_gpu_stop_s"
# The reasons of tasks that others act on. RUN_ENDED names the chief and how it ended.
RUN_ENDED = "the run has ended: {} {}"
START_FAILED = "its start failed, or it is being resumed"
STOPPED_AFTER_LOSS = "stopped after its supervisor was lost"
# In the reason of a task that failed: what it trained with has ended.
NOT_RESTARTED_ALONE = "not restarted alone"
SIGTERM_EXIT = 143  # 128 + 15, as a shell shows it: a command stopped the run


class Outcome(Record):
    """How a run ended.

    `exit` is the exit code of `tfdeploy run`: for a failure the chief's, as a shell shows it, or 1
    if another task, or something unknown, ended the run. `task` is the one whose end decided it:
    the chief, or the task that the chief names as the cause of its end, or that one's cause.
    """

    result: Result
    exit: int
    task: str


def outcome_of(
    chief: str, tasks: Mapping[str, Optional[Ended]], needed: Sequence[str] = ()
) -> Outcome:
    """Return how a run ended whose tasks have all ended. `tasks` has what is known of each, and
    `needed` are those that the chief can't run without."""
    known = {task: state for task, state in tasks.items() if state is not None}
    found = known.get(chief)
    if found is None or _is_lost(found):
        # Its host may be gone, or its disk read-only, so that its end is not recorded there.
        found = _as_others_know(chief, known) or found
    if found is None or found.state not in ENDED:
        return Outcome("unknown", 1, chief)
    if found.state == SUCCEEDED:
        return Outcome("succeeded", 0, chief)
    if _is_lost(found):
        return Outcome("lost", 1, chief)
    if found.planned:
        return Outcome("ended", 0, chief)
    return _bad_end(chief, {**known, chief: found}, needed)


def _bad_end(chief: str, known: Dict[str, Ended], needed: Sequence[str]) -> Outcome:
    *_, task = path = _causes(chief, known)
    first, has_failed = known[task], known[chief].state == FAILED
    if has_failed or first.state == FAILED or first.cause or first.reason.startswith(START_FAILED):
        is_own = has_failed and len(path) == 1 and not first.cause
        code = (first.exit if is_own else 1) or 1
        return Outcome("failed", 128 - code if code < 0 else code, task)
    lost = [each for each in needed if each in known and _is_lost(known[each])]
    if lost:
        return Outcome("lost", 1, lost[0])
    return Outcome("stopped", SIGTERM_EXIT, task)


def _is_lost(task: Ended) -> bool:
    return task.state == LOST or task.reason == STOPPED_AFTER_LOSS


def _causes(task: str, known: Dict[str, Ended]) -> Sequence[str]:
    """Return the task, the one that made it end, the cause of that one's end, and so on, as far as
    these are known to have ended. Tasks may name each other."""
    path = [task]
    while True:
        cause = known[path[-1]].cause
        if cause not in known or known[cause].state not in ENDED or cause in path:
            return path
        path.append(cause)


def _as_others_know(chief: str, known: Dict[str, Ended]) -> Optional[TaskState]:
    """Return the chief's end as the reason of a task says that ended because of it."""
    for task in known.values():
        for state in ENDED:
            if RUN_ENDED.format(chief, past_tense(state)) in task.reason:
                return TaskState(state, since=0.0)
    return None


def past_tense(state: str) -> str:
    """Return how a task ended, as the end of RUN_ENDED."""
    return state.lower() if state in (SUCCEEDED, FAILED) else "was stopped"


def why_stopped(reason: str) -> str:
    """Return why a run stopped itself, from the reason of its chief; "" if a command stopped it."""
    return reason.partition("; ")[0] if IDLE_KEY in reason else ""


def describe_exit(code: int) -> str:
    """Return `exit 1`, or `killed by SIGKILL` for Popen's negative codes."""
    if code >= 0:
        return "exit {}".format(code)
    return "killed by {}".format(signal_name(-code))


def signal_name(number: int) -> str:
    """Return `SIGKILL` for 9; `signal 70` for a number without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal {}".format(number)
