"""Name the tasks that train slower than the others, and what is different on their hosts. Pure.

Nothing is said without a figure, and no figure is called a cause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.errors import HostError
from tfdeploy.formatting.humanize import format_count, format_duration, format_size
from tfdeploy.shared.records import READY, RUNNING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tfdeploy.planning.plan import Placement
    from tfdeploy.shared.records import Pace, TaskReport

SLOW = 0.7  # of the median of all workers
LONG_S = 240.0  # a shorter time says little
TRAINING = ("chief", "worker")
TIMES = 3.0  # a figure is different if it is so many times the median of the other hosts
# What may slow down a host: from which value on it is worth a word, the words, and the number.
FIGURES: Mapping[str, tuple[float, str, Callable[[float], str]]] = {
    "other_cpus": (0.5, "other programs use {} CPUs", "{:.1f}".format),
    "stopped": (0.02, "a CPU quota stops the task {} of the time", "{:.0%}".format),
    "hot": (0.02, "heat throttles a CPU {} of the time", "{:.0%}".format),
    "swapped_bytes_s": (1e5, "it swaps {}", lambda size: f"{format_size(int(size))}/s"),
    "disk_wait_cpus": (0.3, "{} CPUs wait for a disk", "{:.1f}".format),
    "resent": (0.01, "{} of its TCP segments are sent again", "{:.1%}".format),
}


def slow_tasks(reports: Iterable[tuple[Placement, TaskReport | None]]) -> list[HostError]:
    """Return a sentence about each worker below SLOW times the median of all workers, and about
    each other host that differs from the rest of the run; none before LONG_S seconds."""
    paces = {
        placement: report.pace
        for placement, report in reports
        if report and report.state in (READY, RUNNING) and report.pace
        if report.pace.seconds >= LONG_S
    }
    slow = dict(_slow_workers(paces)) if paces else {}
    named = {placement.host for placement in slow}
    first = {p.host: p for p in reversed(paces) if p.host not in named}
    return [
        HostError(placement.host, "; ".join(words))
        for placement in [*slow, *first.values()]
        if (words := [*slow.get(placement, ()), *_differences(placement, paces)])
    ]


def _slow_workers(paces: Mapping[Placement, Pace]) -> Iterator[tuple[Placement, list[str]]]:
    from statistics import median  # loads random and fractions: few status commands need it

    rates = {
        placement: pace.steps_per_s
        for placement, pace in paces.items()
        if placement.task.job in TRAINING and pace.steps_per_s is not None
    }
    usual = median(rates.values()) if rates else 0.0
    for placement, rate in rates.items():
        if rate < SLOW * usual:
            part, long = rate / usual, format_duration(paces[placement].seconds)
            workers = format_count(len(rates), "worker")
            words = (
                f"{placement.task} makes {rate:.3g} steps/s, {part:.0%} of the median of {workers}"
            )
            yield placement, [f"{words} ({usual:.3g}) in the last {long}"]


def _differences(placement: Placement, paces: Mapping[Placement, Pace]) -> Iterator[str]:
    """Yield what is different for a task, with the median of those on other hosts, or, if there is
    only one, of the other tasks: they may have other quotas."""
    from statistics import median

    others = [pace for p, pace in paces.items() if p.host != placement.host]
    others = others or [pace for p, pace in paces.items() if p != placement]
    for name, (least, words, number) in FIGURES.items() if others else ():
        value = getattr(paces[placement], name)
        usual = median(getattr(pace, name) for pace in others)
        if value >= max(least, TIMES * usual):
            yield f"{words.format(number(value))} ({number(usual)} for the others)"
