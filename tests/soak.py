"""Fuzz, then repeat the fault tests until HOURS are over; write tests/soak.md (`make soak`).

    python tests/soak.py HOURS SETS
    python tests/soak.py again SETS    # the parts of a whole soak that found what is mended now

The last round of faults runs to its end. Exit with 1 if any test failed; tests/.failed/ has the
evidence.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "tests" / "soak.md"
# Of a soak of an hour or more; a shorter one has proportionally fewer.
EXAMPLES_A_TEST = 5_000  # `make quick` draws 60, the same in each run
SEQUENCES, OF_PROCESSES = 20_000, 100  # the suite tries 150 and 3
PATIENT = ["-o", "timeout=7200"]  # seconds for one test, which here tries so much more
FUZZING = ["-n", "2", "-m", "hypothesis", "tests"]
INPUTS_A_KIND = 91_000  # together more than a million hostile inputs
ATTACK = ["-n", "2", "tests/attacks/test_fuzz.py"]
ANY_ORDER = ["-n", "2", "-m", "slow", "tests/integration/test_any_order.py"]
PROCESSES = ["-n", "2", "-m", "slow", "tests/integration/test_any_order_processes.py"]
KILLS = ["-n", "2", "-m", "slow", "tests/integration/test_killed_at_each_call.py"]
KILLED_CALLS = 2_000  # of a command; more than any makes
FAULTS, AGAIN = "faults, round ", ", again after a mend"
HEAD = (
    "# The last soak", "",
    "`make soak HOURS=1` fuzzes with new examples, tries commands of two controllers and faults in "
    "any order ([what must hold](../docs/failures.md#what-always-holds)), and repeats the faults. "
    "A soak of less than an hour tries fewer examples.", "",
)  # fmt: skip
TABLE = ("| part | tests | failed | minutes |", "|---|--:|---|--:|")


@dataclass(frozen=True)
class Part:
    """The result of one call of pytest."""

    name: str
    tests: int
    failed: tuple[str, ...]
    minutes: float


def main(hours: float, sets: str) -> int:
    end, share = time.monotonic() + hours * 3600, min(1.0, hours)
    parts = [_run(*each) for each in _of_new_examples(share)]
    parts.append(_attack(round(INPUTS_A_KIND * share)))
    rounds = 0
    while not rounds or time.monotonic() < end:
        rounds += 1
        parts.append(_run(f"{FAULTS}{rounds}", _faults(sets), {}))
        RESULT.write_text(_page(parts))
    RESULT.write_text(_page(parts))
    return any(part.failed for part in parts)


def again(sets: str) -> int:
    """Run the parts of a whole soak again that have found a failure, and replace their rows."""
    known = {name: (words, variables) for name, words, variables in _of_new_examples(1.0)}
    lines, has_failed = RESULT.read_text().splitlines(), False
    for number, line in enumerate(lines):
        name = line[2:].partition(" |")[0].removesuffix(AGAIN)
        if (name in known or name.startswith(FAULTS)) and "| none |" not in line:
            part = _run(name + AGAIN, *known.get(name, (_faults(sets), {})))
            lines[number], has_failed = _row(part), has_failed or bool(part.failed)
            RESULT.write_text("\n".join([*lines, ""]))
    return has_failed


def _faults(sets: str) -> list[str]:
    return ["-n", sets, "--dist", "loadgroup", "--no-loadscope-reorder", "tests/faults"]


def _of_new_examples(share: float) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """Yield name, words of pytest and variables of the parts with more examples than the suite."""
    for full, name, words, variable in (
        (EXAMPLES_A_TEST, "fuzzing, {} new examples a test", FUZZING, "TFDEPLOY_FUZZ"),
        (SEQUENCES, "any order, {} new sequences", ANY_ORDER, "TFDEPLOY_FUZZ_SEQUENCES"),
        (OF_PROCESSES, "any order with real processes, {} new sequences", PROCESSES,
         "TFDEPLOY_FUZZ_PROCESS_SEQUENCES"),
        (KILLED_CALLS, "a kill at each call of a command, at most {}", KILLS,
         "TFDEPLOY_FUZZ_KILLED_CALLS"),
    ):  # fmt: skip
        count = round(full * share)
        yield name.format(f"{count:,}"), PATIENT + words, {variable: str(count)}


def _attack(inputs: int) -> Part:
    name = f"hostile inputs, {inputs:,} new ones of each kind"
    seed = os.urandom(4).hex()
    variables = {"TFDEPLOY_FUZZ_INPUTS": str(inputs), "TFDEPLOY_FUZZ_SEED": seed}
    return _run(name, PATIENT + ATTACK, variables)


def _run(name: str, words: list[str], variables: dict[str, str]) -> Part:
    start_s = time.monotonic()
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *words]
        subprocess.run(command, cwd=ROOT, env={**os.environ, **variables})
        cases = list(ET.parse(report).iter("testcase"))
    failed = [c for c in cases if c.find("failure") is not None or c.find("error") is not None]
    names = tuple(f"{case.get('classname')}.{case.get('name')}" for case in failed)
    return Part(name, len(cases), names, (time.monotonic() - start_s) / 60)


def _page(parts: list[Part]) -> str:
    end, version = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", metadata.version("tensorflow-cpu")
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, TensorFlow {version}"
    return "\n".join([*HEAD, f"Ended {end} on {machine}.", "", *TABLE, *map(_row, parts), ""])


def _row(part: Part) -> str:
    failed = ", ".join(part.failed) or "none"
    return f"| {part.name} | {part.tests} | {failed} | {part.minutes:.0f} |"


if __name__ == "__main__":
    first, number_of_sets = sys.argv[1:]
    sys.exit(again(number_of_sets) if first == "again" else main(float(first), number_of_sets))
