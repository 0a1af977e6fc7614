"""The document of a sweep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tfdeploy.output.json_output.shape import Shape


@dataclass(frozen=True, kw_only=True)
class CellName(Shape):
    """Numbers of tasks."""

    ps: int
    """The number of ps."""
    workers: int
    """The number of workers."""


@dataclass(frozen=True, kw_only=True)
class Load(Shape):
    """What the run's own processes used; null if the hosts did not report it."""

    ps_cores: float | None
    """The CPU cores that the busiest ps used."""
    worker_cores: float | None
    """The CPU cores that the busiest worker used."""
    cores: float | None
    """The CPU cores that all tasks used."""
    network_bytes_per_s: float | None
    """What all tasks received by TCP: bytes between two tasks count once."""
    ps_network_bytes_per_s: float | None
    """What the busiest ps received or sent by TCP, whichever is more."""
    other_cores: float | None
    """The CPU cores that a host used for anything else, the largest number of all hosts."""


@dataclass(frozen=True, kw_only=True)
class SweepRun(Shape):
    """One run of a cell."""

    repeat: int
    """Its number among the cell's runs, from 1."""
    run: str
    """Its id."""
    hosts: list[str]
    """The hosts with its tasks."""
    result: str
    """`measured`, `ended` before its time, `failed` or `running`."""
    reason: str
    """Why it ended or failed."""
    steps_per_s: float | None
    """The steps per second; of a run that ended, for information only."""
    seconds: float | None
    """The seconds that were measured, after the warm-up."""
    source: str | None
    """The chief's `events` or `log`, of which the steps were read."""
    load: Load
    """What its tasks used."""


@dataclass(frozen=True, kw_only=True)
class SweepCell(CellName):
    """All runs with these numbers of tasks. Numbers are medians over the measured ones; a range is
    the lowest and the highest, null with a single run."""

    result: str
    """`measured` if any run was, or else the result of the last one."""
    reason: str
    """Why the first run that was not measured ended or failed."""
    steps_per_s: float | None
    """The steps per second."""
    steps_per_s_range: list[float] | None
    """Its range."""
    examples_per_s: float | None
    """The examples per second; null without --examples-per-step."""
    speedup: float | None
    """The speed relative to `base`."""
    speedup_range: list[float] | None
    """From the slowest run over the fastest of `base`, to the fastest over the slowest."""
    efficiency: float | None
    """The part of the ideal speed-up that was reached."""
    price_per_million: float | None
    """The price of a million examples, or of steps (`synchronous`: batches) if examples are not
    counted; null without --price-per-hour."""
    load: Load
    """What the tasks used."""
    runs: list[SweepRun]
    """The runs."""


@dataclass(frozen=True, kw_only=True)
class PsVerdict(Shape):
    """How many ps are enough for a number of workers."""

    workers: int
    """The number of workers."""
    ps: list[int]
    """The numbers of ps that were compared."""
    enough: int | None
    """The fewest ps of which no other number is measurably faster, or not by 5%."""
    reason: str
    """Why there is no verdict: `no difference measured` or `fewer than 3 runs`."""


@dataclass(frozen=True, kw_only=True)
class WorkerVerdict(Shape):
    """How more workers compare with fewer, with the same number of ps."""

    ps: int
    """The number of ps."""
    before: int
    """The smaller number of workers."""
    workers: int
    """The larger number of workers."""
    verdict: str
    """`faster`, `slower`, `no difference measured` or `fewer than 3 runs`."""


@dataclass(frozen=True, kw_only=True)
class TooFast(Shape):
    """A cell whose speed-up exceeds the ideal by more than the spread, which can't be believed."""

    cell: CellName
    """The cell."""
    base: CellName
    """The smallest cell with as many ps."""
    speedup: float
    """The speed-up over that cell."""
    ideal: float
    """The speed-up if all workers were as fast as those of that cell."""


@dataclass(frozen=True, kw_only=True)
class Cheapest(CellName):
    """The cell with the lowest price."""

    price_per_million: float
    """Its price."""
    no_difference: list[CellName]
    """Cells whose prices do not differ from it by more than the spread."""


@dataclass(frozen=True, kw_only=True)
class SweepDocument(Shape):
    """The measurements, as in sweep.json."""

    terms: dict[str, Any]
    """What all runs have in common: keys of hosts.toml, the release, the options."""
    examples_per_step: int | None
    """The value of --examples-per-step."""
    synchronous: bool
    """Whether each step takes its examples from every worker."""
    base: CellName | None
    """The measured numbers of tasks with the fewest workers: `speedup` is relative to them."""
    cells: list[SweepCell]
    """One object for each cell."""
    enough_ps: dict[str, int]
    """For each number of workers with a verdict, the fewest ps that are enough."""
    ps_verdicts: list[PsVerdict]
    """One verdict for each number of workers that was measured with several numbers of ps."""
    worker_verdicts: list[WorkerVerdict]
    """One verdict for each measured cell and the next larger one with as many ps."""
    too_fast: list[TooFast]
    """Speed-ups that can't be believed."""
    cheapest: Cheapest | None
    """The cheapest cell; null without --price-per-hour or with a single cell."""
