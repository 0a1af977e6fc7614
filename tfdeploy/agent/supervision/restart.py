"""Decide whether and when a task is restarted, and why. Pure: equal arguments, equal decisions."""

from __future__ import annotations

import re
import signal
from typing import Callable, List, Optional, Sequence

from ...shared.outcome import NOT_RESTARTED_ALONE, describe_exit, signal_name
from ...shared.protocol.record import Record, field, replace
from ...shared.records import (
    BACKOFF,
    FAILED,
    PEER_ERRORS,
    PEER_STATUS_CODES,
    STOPPED,
    SUCCEEDED,
    Policy,
)
from . import shortage

WINDOW_S = 3600.0  # restarts before it do not count: a training of weeks may be restarted each day
MAX_DELAY_S = 60.0  # a longer delay wastes GPUs, and a shorter one fills logs
# A shell reports the death by a signal as 128 + its number.
SHELL_SIGNALS = range(129, 193)
# Signals by which a process ends itself: TensorFlow and JAX abort when something can't be mended.
CRASHES = (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV)
TRACEBACK = b"Traceback (most recent call last):"
ADDRESS = re.compile(r"0x[0-9a-f]+")
# Before each line of a traceback. Source: PyTorch's _distributed_excepthook, distributed_c10d.py.
RANK = re.compile(rb"^\[rank\d+\]: ", re.MULTILINE)
IGNORED = b"Exception ignored "  # source: Python/errors.c, _PyErr_WriteUnraisableMsg
MAX_EXCEPTION = 140
# Before the names of its exceptions; nobody needs it to find them.
TENSORFLOW = "tensorflow.python.framework.errors_impl."
AFTER_TRACEBACK = 500  # bytes that TensorFlow and JAX print as they exit
RESTART = "; restart "  # follows the failure in the reason of a task that waits for its restart
# Source: Python/pythonrun.c, print_exception_cause_and_context.
CHAINED = (
    b"The above exception was the direct cause of the following exception:",
    b"During handling of the above exception, another exception occurred:",
)
LAUNCHERS_ERROR = "ChildFailedError"  # of torchrun, after the traceback of its child
# TensorFlow ends the line of an exception with this, and names the cause below the node's own stack
# (source: tensorflow/python/framework/error_interpolation.py).
GRAPH_ERROR = "Graph execution error:"
ROOT_ERROR = re.compile(r"\s*\(0\) (?:[A-Z_]+: +)?(.+)")
NO_CAUSE = ("Detected at node", "Node:", "<stack traces unavailable>")


class Attempt(Record):
    """One run of the task's process.

    `started_at` is in seconds of a monotonic clock. `ready` says whether the task ever answered on
    its port, or, without a port, lived for a while. `failure` is the traceback that ended it, or,
    without one, the description of its exit code; "" if it did not fail by itself, or if a restart
    can help. `progress` is the count of
    run_progress.py at its end; None if unknown. `lost_peer` says that it lost its connection to
    another task, while a task of the run had failed permanently.
    """

    started_at: float
    ready: bool
    failure: str = ""
    progress: Optional[int] = None
    lost_peer: bool = False


class Exit(Record):
    """How an attempt ended.

    `code` is negative for a signal. `stopped` means that it was stopped on request. `reason` says
    more than the code, for example that the task was FROZEN; `detail` ends the sentence that says
    the code, and `exception` is the one that ended it, if it is known. `final` means that a restart
    cannot help. `error` is the one of PEER_ERRORS that ended it, or "". `failed_task` is another
    task that has failed permanently, with its reason in `why_failed`; "" if there is none.
    `together` means that all tasks that meet start again. `ended_peers` are the tasks that it
    would have to meet again after a restart, and that have ended.
    """

    code: int
    stopped: bool = False
    reason: str = ""
    final: bool = False
    error: str = ""
    failed_task: str = ""
    why_failed: str = ""
    detail: str = ""
    exception: str = ""
    together: bool = False
    ended_peers: List[str] = field(default_factory=list)


class Decision(Record):
    """The task's next state, its reason, and for BACKOFF the seconds until the restart. `cause` is
    the other task whose failure made this one fail, if any."""

    state: str
    delay_s: float
    reason: str
    cause: str = ""


def decide(
    policy: Policy, history: Sequence[Attempt], ended: Exit, now: float, jitter: float
) -> Decision:
    """Decide what follows the end of the last attempt in `history`.

    `now` is on the clock of the attempts. `jitter` is between 0 and 1 and shortens the delay, so
    that tasks that ended together do not restart together again and again.
    """
    if ended.stopped:
        code = ended.code
        how = "stopped by " + signal_name(-code) if code < 0 else describe_exit(code)
        reason = "{}; {}".format(ended.reason, how)
        return Decision(STOPPED, 0.0, reason)
    reason = ended.reason or describe_exit(ended.code) + ended.detail
    exception = ": " + ended.exception if ended.exception else ""
    if ended.code == 0 and not ended.reason:
        return Decision(SUCCEEDED, 0.0, reason)
    if ended.ended_peers and not ended.final:
        what = ": " + ended.error if ended.error else exception  # what it lost is named already
        text = "{}; {}{}".format(reason, not_alone(ended.ended_peers), what)
        return Decision(FAILED, 0.0, text, ended.failed_task if ended.error else "")
    refusal = _refusal(policy, history, ended, now)
    if refusal is not None:
        if history[-1].lost_peer:
            return Decision(FAILED, 0.0, reason + refusal, ended.failed_task)
        return Decision(FAILED, 0.0, reason + refusal + exception + _first_time(history))
    nth = _count_restarts(history, now) + 1
    # Delays are for crash loops: a task that ran for longer than the longest of them is in none.
    ran_long = now - history[-1].started_at >= MAX_DELAY_S
    delay_s = 0.0 if nth == 1 and ran_long else _delay_s(policy, nth, jitter)
    text = "{}{}{}{} of {}".format(reason, exception, RESTART, nth, policy.attempts)
    return Decision(BACKOFF, delay_s, text)


def not_restarted(reason: str, why: str) -> str:
    """Return the reason of a task in BACKOFF, `reason`, after it was decided not to restart it."""
    return "{}; {}".format(reason.rpartition(RESTART)[0] or reason, why)


def not_alone(ended: Sequence[str]) -> str:
    """Return why a task is not restarted whose peers have ended."""
    more = " and {} more".format(len(ended) - 1) if len(ended) > 1 else ""
    verb = "have" if more else "has"
    return "{}, because {}{} {} ended".format(NOT_RESTARTED_ALONE, ended[0], more, verb)


def not_started(program: str, error: OSError) -> Exit:
    """Return the end of an attempt whose process could not be started. It is tried again only if
    the host may have room for another process later."""
    lacking = shortage.find(error)
    if lacking and shortage.is_temporary(error):
        return Exit(127, reason="{0.message}; {0.hint}".format(lacking))
    return Exit(127, reason="cannot run {}: {}".format(program, error.strerror), final=True)


def last_traceback(output: bytes) -> str:
    """Return the last traceback of a process's output, up to the line of the exception.

    Addresses of objects are removed, so that equal tracebacks are equal texts. "" if there is none.
    """
    _, found, text = RANK.sub(b"", output).rpartition(TRACEBACK)
    if not found:
        return ""
    frames: List[str] = []
    for line in text.decode(errors="replace").strip("\r\n").splitlines():
        frames.append(ADDRESS.sub("0x", line.rstrip()))
        if line and not line[0].isspace():
            break
    return "\n".join(frames)


def ends_with_traceback(output: bytes) -> bool:
    """Return whether little follows the last traceback: a program that has caught it goes on."""
    traceback = last_traceback(output)
    before, _, text = RANK.sub(b"", output).rpartition(TRACEBACK)
    is_uncaught = bool(traceback) and not _is_ignored(before)
    return is_uncaught and len(text) < len(traceback) + AFTER_TRACEBACK


def exception(output: bytes) -> str:
    """Return the last exception of a process's output, and the innermost one that it was raised
    from, or while handling it; "" without a traceback."""
    before, found, _ = RANK.sub(b"", output).rpartition(TRACEBACK)
    last = last_traceback(output).rpartition("\n")[2]
    if LAUNCHERS_ERROR in last:
        return exception(before) or last
    innermost = ""
    while found and before.rstrip().endswith(CHAINED):
        innermost = last_traceback(before).rpartition("\n")[2]
        before, found, _ = before.rpartition(TRACEBACK)
    cause = graph_error_cause(output)
    text = _shorten(last.replace(GRAPH_ERROR, cause) if cause else last)
    return "{}, from {}".format(text, _shorten(innermost)) if innermost else text


def _shorten(exception: str) -> str:
    """Return the exception as it fits into a sentence, up to the end of a word."""
    text = exception.replace(TENSORFLOW, "")
    if len(text) <= MAX_EXCEPTION:
        return text
    return (text[:MAX_EXCEPTION].rpartition(" ")[0] or text[:MAX_EXCEPTION]) + " ..."


def note_of_traceback(output: bytes) -> str:
    """Return a note, as the end of a sentence, that a process that exited with 0 has printed a
    traceback at its end: a tuner catches the errors of its trials. "" if it has not. Exceptions
    that Python itself ignores, while it exits for example, do not count."""
    before, found, _ = output.rpartition(TRACEBACK)
    if not found or _is_ignored(before):
        return ""
    exception = last_traceback(output).rpartition("\n")[2]
    return ", with a traceback in its last lines: {}".format(_shorten(exception))


def _is_ignored(before: bytes) -> bool:
    """Return whether Python says in what it printed `before` a traceback that it ignores it."""
    return before.rstrip().rpartition(b"\n")[2].startswith(IGNORED)


def graph_error_cause(output: bytes) -> str:
    """Return the line below the last traceback that says why TensorFlow could not run a graph; ""
    if no graph was the reason."""
    text = output.rpartition(TRACEBACK)[2].decode(errors="replace")
    _, found, below = text.partition(GRAPH_ERROR)
    for line in below.splitlines() if found else ():
        root = ROOT_ERROR.match(line)
        if root:
            return ADDRESS.sub("0x", root[1].strip())
        is_text = line.strip() and not line[0].isspace() and not line.startswith(NO_CAUSE)
        if is_text and "root error(s) found" not in line:
            return ADDRESS.sub("0x", line.strip())
    return ""


def peer_error(output: bytes) -> str:
    """Return which of PEER_ERRORS the last traceback names; "" for none."""
    _, found, text = output.rpartition(TRACEBACK)
    return next((name for name in PEER_ERRORS if found and name.encode() in text), "")


def record_failure(
    history: Sequence[Attempt],
    code: int,
    output: bytes,
    get_progress: Callable[[], Optional[int]],
    failed_task: str = "",
) -> List[Attempt]:
    """Return the history with the failure of its last attempt, which exited with `code`.

    `get_progress` is called only if the attempt failed by itself, or lost a peer that may be
    `failed_task`, which has failed permanently.
    """
    failure = _failure(code, output)
    lost_peer = bool(failed_task) and not failure and code not in SHELL_SIGNALS
    if not failure and not lost_peer:
        return [*history]
    last = replace(history[-1], failure=failure, progress=get_progress(), lost_peer=lost_peer)
    return [*history[:-1], last]


def has_crashed(code: int) -> bool:
    """Return whether a process, or the child of a shell, has ended itself by a signal."""
    return -code in CRASHES or code - 128 in CRASHES


def record_ready(history: Sequence[Attempt]) -> List[Attempt]:
    """Return the history with its last attempt READY."""
    return [*history[:-1], replace(history[-1], ready=True)]


def _failure(code: int, output: bytes) -> str:
    """Return `Attempt.failure`. A program may catch the loss of a peer, print it and exit."""
    if has_crashed(code):
        return describe_exit(code)
    if TRACEBACK in output:
        return "" if peer_error(output) else last_traceback(output)
    lost_peer = any(word.encode() in output for word in (*PEER_ERRORS, *PEER_STATUS_CODES))
    return "" if lost_peer or code in SHELL_SIGNALS else describe_exit(code)


def _refusal(policy: Policy, history: Sequence[Attempt], ended: Exit, now: float) -> Optional[str]:
    """Return why the task is not restarted, as the end of a sentence; None if it is."""
    if ended.final:
        return ""
    if not (ended.together or any(attempt.ready for attempt in history)):
        return "" if ended.reason else ", before it was ever READY"
    if not ended.reason and not _is_retried(policy.exits, ended):
        return ", which is not retried"
    if not ended.reason and _repeats(history):
        failure = history[-1].failure
        if not failure:
            root = "{} failed: {}".format(ended.failed_task, ended.why_failed)
            return ", twice after a lost connection and with no progress in between; " + root
        if failure == describe_exit(ended.code):
            return ", twice with no progress in between"
        return ", twice with the same traceback and no progress in between"
    if policy.attempts == 0:
        return ""
    if _count_restarts(history, now) >= policy.attempts:
        many = "its one restart" if policy.attempts == 1 else "all {} restarts"
        verb = "is" if policy.attempts == 1 else "are"
        text = "; {} within an hour {} used up".format(many, verb)
        return text.format(policy.attempts)
    return None


def _first_time(history: Sequence[Attempt]) -> str:
    """Return, as the end of a sentence, the exception of the first failure if the last one is
    another: what the first attempt left behind may fail each restart."""
    first = next((attempt.failure for attempt in history if attempt.failure), "")
    if "\n" not in first or first == history[-1].failure:
        return ""
    return "; the first time: {}".format(_shorten(first.rpartition("\n")[2]))


def _repeats(history: Sequence[Attempt]) -> bool:
    """Return whether an earlier attempt failed like the last one, without progress since then."""
    *earlier, last = history
    if last.progress is None or not (last.failure or last.lost_peer):
        return False
    failure = (last.failure, last.lost_peer, last.progress)
    return any((each.failure, each.lost_peer, each.progress) == failure for each in earlier)


def _is_retried(exits: Sequence[object], ended: Exit) -> bool:
    code = ended.code
    number = -code if code < 0 else code - 128 if code in SHELL_SIGNALS else None
    if code in exits or ended.error in exits:
        return True
    return number is not None and ("signals" in exits or signal_name(number) in exits)


def _count_restarts(history: Sequence[Attempt], now: float) -> int:
    """Count the restarts within WINDOW_S. The first attempt is not a restart."""
    return sum(attempt.started_at > now - WINDOW_S for attempt in history[1:])


def _delay_s(policy: Policy, nth: int, jitter: float) -> float:
    """Return the delay of the nth restart: doubled each time, shortened by up to half."""
    full = min(MAX_DELAY_S, policy.delay_s * 2.0 ** min(nth - 1, 60))
    return full * (1.0 - jitter / 2)
