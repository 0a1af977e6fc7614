"""`tfdeploy compare`: what several runs told of their loss, against step and against time.

It reads what `collect` brought home: runs/<run>/events/, or by a pattern the chief's log.
"""

from __future__ import annotations

import math
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy import curves, run
from tfdeploy.errors import RunError, TfdeployError
from tfdeploy.picture import Line, Panel

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Mapping, Sequence

    from tfdeploy.curves import Curve
    from tfdeploy.run import Run

LOSS, SPEED = "loss", "global_step/sec"  # what scripts mostly tell, and compat.v1 by itself
SMOOTH = 20  # the running mean is over so much of the longest curve, if nothing else is asked for
SHOWN = 12
PICTURE = "compare.svg"
EXAMPLE = r"--pattern 'step (?P<step>\d+) loss (?P<loss>\S+)' reads the chief's log instead"


@dataclass(frozen=True)
class Told:
    """One run. `began` is the moment of its first scalar of any tag, by the clock of the task that
    told the curve, NaN where a log tells no time; `tasks` counts those of each job, where the run's
    record is there; `smoothed` has a value for each point of the curve."""

    label: str
    run: str
    folder: Path
    tasks: Mapping[str, int]
    began: float
    curve: Curve
    smoothed: tuple[float, ...]

    @property
    def seconds(self) -> tuple[float, ...]:
        return tuple(point.at - self.began for point in self.curve)

    @property
    def rate(self) -> float:
        """Steps a second between the first point and the last, what restarts cost included."""
        first, last = self.curve[0], self.curve[-1]
        took = last.at - first.at
        return (last.step - first.step) / took if took > 0 else math.nan


@dataclass(frozen=True)
class Comparison:
    """`smooth` is the number of steps that a smoothed value is the mean of; `rises` says that
    higher is better, as of an accuracy."""

    tag: str
    smooth: int
    rises: bool
    target: float | None
    runs: tuple[Told, ...]

    def best(self, told: Told) -> float:
        numbers = [value for value in told.smoothed if not math.isnan(value)]
        return (max if self.rises else min)(numbers, default=math.nan)

    def reached(self, told: Told) -> tuple[int, float] | None:
        """At which step, and after how many seconds, a smoothed value first was so good."""
        sign = -1 if self.rises else 1
        for point, value in zip(told.curve, told.smoothed, strict=True):
            if self.target is not None and sign * value <= sign * self.target:
                return point.step, point.at - told.began
        return None


@dataclass(frozen=True)
class _Asked:
    label: str
    folder: Path
    record: Run | None

    @property
    def id(self) -> str:
        return self.folder.absolute().name

    @property
    def project(self) -> str:
        return self.record.inventory.project if self.record else ""


def picture_of(hosts: Path) -> Path:
    """Where the picture goes if nothing else is said: among the hosts file's runs, if there are."""
    folder = hosts.parent / run.FOLDER
    return (folder if folder.is_dir() else Path()) / PICTURE


def compare(
    hosts: Path,
    named: Sequence[str],
    *,
    tag: str | None = None,
    pattern: re.Pattern[str] | None = None,
    smooth: int | None = None,
    target: float | None = None,
) -> Comparison:
    """Each of `named` is `RUN` or `LABEL=RUN`: an id beside the hosts file, or a run's folder.
    Raises RunError for a run that isn't at home, and for what it doesn't tell."""
    asked = _labelled([_asked(hosts, words) for words in named])
    told = {each.label: _curves(each, pattern) for each in asked}
    chosen = _tag(told, tag)
    longest = max(found[chosen][-1].step - found[chosen][0].step for found in told.values())
    window = max(1, longest // SMOOTH) if smooth is None else max(1, smooth)
    runs = tuple(_told(each, told[each.label], chosen, window) for each in asked)
    return Comparison(chosen, window, _rises(chosen, runs), target, runs)


def panels(seen: Comparison, log: str = "") -> tuple[Panel, ...]:
    """Against step, and, where any run tells the time, against time."""
    steps = [_line(told, [point.step for point in told.curve]) for told in seen.runs]
    timed = [_line(told, told.seconds) for told in seen.runs if math.isfinite(told.began)]
    time = Panel("", "seconds since the run's first event", seen.tag, timed, log=log)
    return Panel("", "step", seen.tag, steps, log=log), *([time] if timed else [])


def _line(told: Told, xs: Sequence[float]) -> Line:
    return Line(told.label, xs, told.smoothed, _values(told.curve))


def _values(curve: Curve) -> list[float]:
    return [math.nan if point.value is None else point.value for point in curve]


def smoothed(curve: Curve, steps: int) -> tuple[float, ...]:
    """At each point the mean of all that was told within so many steps up to it. Sums are exact, or
    one huge loss would be felt in every mean after it."""
    numbers = [Fraction(value) if math.isfinite(value) else None for value in _values(curve)]
    sums = list(accumulate((number or Fraction() for number in numbers), initial=Fraction()))
    odd = list(accumulate((number is None for number in numbers), initial=0))
    begin, means = 0, []
    for end, point in enumerate(curve, 1):
        while curve[begin].step <= point.step - steps:
            begin += 1
        mean = float((sums[end] - sums[begin]) / (end - begin))
        means.append(math.nan if odd[end] > odd[begin] else mean)
    return tuple(means)


# Which runs


def _asked(hosts: Path, words: str) -> _Asked:
    label, _, name = words.partition("=") if not _is_folder(Path(words)) else ("", "", words)
    label, name = (label, name) if name else ("", label)
    base = hosts.absolute().parent / run.FOLDER
    folder = base / name if _is_folder(base / name) else Path(name)
    if not _is_folder(folder):
        hint = run.newest(base) or "say --hosts FILE"
        raise RunError(f'there is no run "{name}" in {base}, and no such folder', hint)
    return _Asked(label, folder, _record(folder))


def _is_folder(path: Path) -> bool:
    """A name may be longer than any file's, or lie where we may not look."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _record(folder: Path) -> Run | None:
    """A comparison needs no record: what it would tell is left out."""
    with suppress(OSError, TfdeployError):
        return run.read(folder)
    return None


def _labelled(asked: Sequence[_Asked]) -> list[_Asked]:
    """Whoever has no label has the name of its project, if that tells them apart, else its id."""
    projects = {each.project for each in asked} - {""}
    apart = len(projects) == len(asked) > 1
    named = [each.label or (each.project if apart else each.id) for each in asked]
    for label, count in Counter(named).items():
        if count > 1:
            raise RunError(f'{count} runs are called "{label}"', "name them apart: LABEL=RUN")
    return [_Asked(label, e.folder, e.record) for label, e in zip(named, asked, strict=True)]


# What they tell


def _curves(asked: _Asked, pattern: re.Pattern[str] | None) -> dict[str, Curve]:
    try:
        _refuse_empty(asked)
        return _of_log(asked, pattern) if pattern else _of_events(asked)
    except OSError as error:
        raise RunError(f"{error.filename} can't be read: {error.strerror}") from None


def _refuse_empty(asked: _Asked) -> None:
    if any((asked.folder / name).is_dir() for name in ("events", "logs")):
        return
    if asked.record:
        hint = f"tfdeploy collect {asked.record.flags}"
        raise RunError(f"run {asked.id} isn't at home yet", hint)
    raise RunError(f"{asked.folder} is no run's folder: it has neither events/ nor logs/")


def _of_events(asked: _Asked) -> dict[str, Curve]:
    found = curves.of_events(asked.folder / "events")
    if not found:
        raise RunError(f"run {asked.id}: its event files hold no scalar", EXAMPLE)
    return found


def _of_log(asked: _Asked, pattern: re.Pattern[str]) -> dict[str, Curve]:
    group = next((name for name in ("value", LOSS) if name in pattern.groupindex), None)
    if not group:
        raise RunError(f'the pattern "{pattern.pattern}" names no loss', f"say {curves.GROUPS}")
    log = _chiefs_log(asked)
    files = [file for file in (log.with_name(f"{log.name}.1"), log) if file.is_file()]
    text = "".join(file.read_text(errors="replace") for file in files)
    curve = tuple(point for point in curves.of_log(text, pattern) if point.value is not None)
    if not curve:
        last = (text.splitlines() or [""])[-1]
        found = f'{log} has no line with "{pattern.pattern}"'
        raise RunError(found, f"its last line is: {last}" if last else "")
    return {group: curve}


def _chiefs_log(asked: _Asked) -> Path:
    logs = asked.folder / "logs"
    if asked.record:
        return logs / f"{asked.record.plan.chief.task.file_name}.log"
    chief = logs / "chief-0.log"
    return chief if chief.is_file() else logs / "worker-0.log"


def _tag(told: Mapping[str, Mapping[str, Curve]], asked: str | None) -> str:
    for label, found in told.items():
        if asked and asked not in found:
            raise RunError(f'{label} tells no "{asked}"', f"it tells {_listed(found)}")
    shared = set.intersection(*(set(found) for found in told.values()))
    chosen = [asked] if asked else [LOSS] if LOSS in shared else sorted(shared - {SPEED})
    if not chosen:
        lines = (f"{label} tells {_listed(found)}" for label, found in told.items())
        raise RunError("no scalar is told by all of the runs", "\n  ".join(lines))
    if len(chosen) > 1:
        several = f'the runs don\'t all tell a "{LOSS}", but {_listed(chosen)}'
        raise RunError(several, "say --tag NAME")
    return chosen[0]


def _listed(names: Iterable[str]) -> str:
    shown = sorted(names)
    more = f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    return f"{', '.join(shown[:SHOWN])}{more}"


def _told(asked: _Asked, found: Mapping[str, Curve], tag: str, window: int) -> Told:
    steps = curves.steps(curves.of_one_clock(found, tag))
    placed = asked.record.plan.placements if asked.record else ()
    return Told(
        label=asked.label,
        run=asked.id,
        folder=asked.folder,
        tasks=Counter(each.task.job for each in placed),
        began=steps[0].at if steps else math.nan,
        curve=found[tag],
        smoothed=smoothed(found[tag], window),
    )


def _rises(tag: str, runs: Sequence[Told]) -> bool:
    """Whether higher is better: no loss, and most runs end higher than they began."""
    risen = [told.smoothed[-1] > told.smoothed[0] for told in runs]
    return LOSS not in tag.lower() and 2 * sum(risen) > len(runs)
