"""How fast tasks train, from the counters that their supervisors keep; which tasks are slower than
the others, and what is different on their hosts. Pure.

Nothing is said without a figure, and no figure is called a cause.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, Mapping, Optional, Tuple

from .protocol.record import Record, field, replace
from .records import Pace

WINDOW_S = 300.0
SLACK_S = 45.0  # a line comes every 30 s
SLOW = 0.7  # of the median of all workers
LONG_S = 240.0  # a shorter time says little
TRAINING = ("chief", "worker")
TIMES = 3.0  # a figure is different if it is this many times the median of the other hosts
# What may slow down a host: from which value on it is worth a word, the words, how a number is
# written, and in which unit.
FIGURES: Mapping[str, Tuple[float, str, str, float]] = {
    "other_cpus": (0.5, "other programs use {} CPUs", "{:.1f}", 1),
    "stopped": (0.02, "a CPU quota stops the task {} of the time", "{:.0%}", 1),
    "hot": (0.02, "heat throttles a CPU {} of the time", "{:.0%}", 1),
    "swapped_bytes_s": (1e5, "it swaps {}", "{:.1f} MB/s", 1e6),
    "disk_wait_cpus": (0.3, "{} CPUs wait for a disk", "{:.1f}", 1),
    "resent": (0.01, "{} of its TCP segments are sent again", "{:.1%}", 1),
}


class Counters(Record):
    """A line of a task's pace history. `at` is its host's clock, in seconds since 1970; seconds of
    CPU time are those of the whole host, `own_s` those of the run's processes on it. Of
    `gpu_problems` there is a sentence for each GPU of the task."""

    at: float
    step: Optional[int]
    cpus: int
    busy_s: float
    own_s: float
    disk_wait_s: float
    swapped_bytes: int
    segments_sent: int
    segments_resent: int
    hot_s: float
    stopped_s: float
    gpu_problems: List[str] = field(default_factory=list)


GROWING = ("step", "busy_s", "own_s", "disk_wait_s", "swapped_bytes", "segments_sent",
           "segments_resent", "hot_s", "stopped_s", "at")  # fmt: skip


def newest(lines: List[Counters]) -> Optional[Pace]:
    """Return the pace of the last WINDOW_S seconds, or since the task was started again; None if
    there are no two lines."""
    if not lines:
        return None
    first = last = lines[-1]
    for line in reversed(lines):
        if _started_again(line, first) or last.at - line.at > WINDOW_S + SLACK_S:
            break
        first = line
    return between(first, last) if last.at > first.at else None


def overall(lines: List[Counters]) -> Optional[Pace]:
    """Return the pace of all attempts together, from the first step on; None if there are no two
    lines."""
    lines = [line for line in lines if line.step is not None] or lines
    if not lines:
        return None
    names = [name for name in GROWING if getattr(lines[0], name) is not None]
    sums = {name: getattr(lines[0], name) for name in names}
    for before, after in zip(lines, lines[1:]):  # noqa: B905, RUF007 - Python 3.8
        if after.at > before.at and not _started_again(before, after):
            for name in names:
                sums[name] += getattr(after, name) - getattr(before, name)
    last = replace(lines[-1], **sums)
    return between(lines[0], last) if last.at > lines[0].at else None


def _started_again(before: Counters, after: Counters) -> bool:
    return before.own_s > after.own_s or (before.step or 0) > (after.step or 0)


def between(first: Counters, last: Counters) -> Pace:
    """Return the pace from one line to a later one."""
    seconds = last.at - first.at
    steps = None if first.step is None or last.step is None else last.step - first.step
    sent = last.segments_sent - first.segments_sent

    def rate(before: float, after: float) -> float:
        return max(0.0, after - before) / seconds

    return Pace(
        seconds=seconds,
        steps_per_s=None if steps is None else steps / seconds,
        cpus=last.cpus,
        other_cpus=max(0.0, rate(first.busy_s, last.busy_s) - rate(first.own_s, last.own_s)),
        disk_wait_cpus=rate(first.disk_wait_s, last.disk_wait_s),
        swapped_bytes_s=rate(first.swapped_bytes, last.swapped_bytes),
        resent=(last.segments_resent - first.segments_resent) / sent if sent > 0 else 0.0,
        hot=min(1.0, rate(first.hot_s, last.hot_s)),
        stopped=min(1.0, rate(first.stopped_s, last.stopped_s)),
        gpu_problems=last.gpu_problems,
    )


# Which tasks are slow


class TaskPace(Record):
    """The pace of a task, such as `worker:1`, and its host."""

    task: str
    host: str
    pace: Pace


def slow_tasks(tasks: List[TaskPace]) -> List[Tuple[str, str]]:
    """Return a host and a sentence for each worker below SLOW times the median of all workers, and
    for each other host that differs from the rest of the run, or has a GPU with a problem; nothing
    of rates and figures before LONG_S seconds."""
    known = [each for each in tasks if each.pace.seconds >= LONG_S]
    slow = {each.task: words for each, words in _slow_workers(known)}
    named = {each.host for each in known if each.task in slow}
    first = {each.host: each for each in reversed([*known, *tasks]) if each.host not in named}
    found = []
    for each in [*(e for e in known if e.task in slow), *reversed([*first.values()])]:
        words = [*slow.get(each.task, ()), *differences(each, known), *gpu_problems(each, tasks)]
        if words:
            found.append((each.host, "; ".join(words)))
    return found


def is_worker(task: str) -> bool:
    return task.partition(":")[0] in TRAINING


def usual_rate(tasks: List[TaskPace]) -> Tuple[float, int]:
    """Return the median rate of the workers, and how many of them have one."""
    rates = [each.pace.steps_per_s for each in tasks if is_worker(each.task)]
    known = [rate for rate in rates if rate is not None]
    return _median(known) if known else 0.0, len(known)


def _slow_workers(tasks: List[TaskPace]) -> Iterator[Tuple[TaskPace, List[str]]]:
    usual, count = usual_rate(tasks)
    for each in tasks:
        rate = each.pace.steps_per_s
        if is_worker(each.task) and rate is not None and rate < SLOW * usual:
            words = "{} makes {:.3g} steps/s, {:.0%} of the median of {} workers ({:.3g})"
            words += " in the last {}"
            long = "{}m {:02}s".format(*divmod(int(each.pace.seconds), 60))
            yield each, [words.format(each.task, rate, rate / usual, count, usual, long)]


def differences(own: TaskPace, tasks: List[TaskPace]) -> Iterator[str]:
    """Yield what is different for a task, with the median of those on other hosts, or, if there is
    only one, of the other tasks: they may have other quotas."""
    for name, (least, words, written, unit) in FIGURES.items():
        value = getattr(own.pace, name)
        # Most are small, and the medians of many hosts take long.
        if value < least or own.pace.seconds < LONG_S:
            continue
        others = [each for each in tasks if each.host != own.host]
        others = others or [each for each in tasks if each.task != own.task]
        usual = _median([getattr(each.pace, name) for each in others]) if others else value
        if value >= TIMES * usual:
            number, rest = written.format(value / unit), written.format(usual / unit)
            yield "{} ({} for the others)".format(words.format(number), rest)


def gpu_problems(own: TaskPace, tasks: List[TaskPace]) -> Dict[str, None]:
    """Return the problems of all GPUs of a task's host, each once."""
    found = [each.pace.gpu_problems for each in tasks if each.host == own.host]
    return dict.fromkeys(problem for problems in found for problem in problems)


def _median(values: List[float]) -> float:
    ordered, middle = sorted(values), len(values) // 2
    return (ordered[middle] + ordered[~middle]) / 2
