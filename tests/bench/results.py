"""The results: samples, the machine and the tools' versions, stored in one JSON file."""

from __future__ import annotations

import json
import os
import platform
import statistics
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

SHARED = 0.15  # if other processes used a larger share of the CPU, the sample is disturbed

STEPS = {
    "plan_cold": "plan, the first one",
    "plan": "plan, again",
    "push_cold": "push, the first one",
    "push_same": "push, nothing changed",
    "push_one": "push, one file changed",
    "start": "start, until every task answers",
    "status": "status",
    "stop": "stop",
    "collect": "collect 512 MB",
    "collect_more": "collect again, 64 MB newer",
    "help": "--help",
}
ALONE = ("collect", "collect_more", "help")
"""Steps that do not depend on the number of hosts: they are measured with one host."""


@dataclass(frozen=True)
class Sample:
    """One command of one tool. `moved_mb` is what its first host sent and received during it;
    `others` is the share of the CPU in use just before it started."""

    tool: str
    n: int
    step: str
    run: int
    wall_s: float
    cpu_s: float
    peak_mb: float
    moved_mb: float
    others: float
    ok: bool


@dataclass
class Results:
    """All samples of one call of the bench."""

    machine: dict[str, Any]
    versions: dict[str, str]
    samples: list[Sample] = field(default_factory=list)

    @property
    def tools(self) -> list[str]:
        return list(dict.fromkeys(sample.tool for sample in sorted(self.samples, key=self._order)))

    def _order(self, sample: Sample) -> int:
        return list(self.versions).index(sample.tool)

    @property
    def sizes(self) -> list[int]:
        return sorted({sample.n for sample in self.samples if sample.step not in ALONE})

    def of(self, tool: str, n: int, step: str, figure: str) -> list[float]:
        """Return all values of a figure; only those of undisturbed samples if there are any."""
        found = self._samples(tool, n, step)
        quiet = [sample for sample in found if sample.others < SHARED]
        return [getattr(sample, figure) for sample in quiet or found]

    def disturbed(self, tool: str, n: int, step: str) -> bool:
        """Return whether every sample started on a busy machine."""
        return all(sample.others >= SHARED for sample in self._samples(tool, n, step))

    def _samples(self, tool: str, n: int, step: str) -> list[Sample]:
        return [s for s in self.samples if (s.tool, s.n, s.step, s.ok) == (tool, n, step, True)]

    def median(self, tool: str, n: int, step: str, figure: str) -> float | None:
        values = self.of(tool, n, step, figure)
        return statistics.median(values) if values else None

    def save(self, file: Path) -> None:
        """Replace the file atomically: an interrupted run leaves the previous complete results."""
        file.parent.mkdir(exist_ok=True)
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(self), indent=1) + "\n")
        fresh.replace(file)


def load(file: Path) -> Results:
    report = json.loads(file.read_text())
    samples = [Sample(**sample) for sample in report.pop("samples")]
    return Results(**report, samples=samples)


def machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1e9),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "date": datetime.now(UTC).date().isoformat(),
    }
