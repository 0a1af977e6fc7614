"""Leave out slow tests whose subject has not changed since they last passed.

A group below names tests and the files that they are about. `make nightly` runs every test; if all
pass, it stores in proved.json a hash of each group's files, tests included: commit that file.
`make test` leaves out a group whose files still have the stored hash, and says so.

Only contents count, and nothing asks git: a shallow clone, an unpacked archive and a folder with
edits that are not committed are all judged alike. A group that has no stored hash runs.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from support import order

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

ROOT = Path(__file__).parents[2]
PROVED = Path(__file__).with_name("proved.json")  # a hash by group


@dataclass(frozen=True)
class Group:
    """Tests, by the start of their ids, and the files that they prove something about.

    The tests of a group show details of these files. That commands use them correctly is also
    shown by tests that always run.
    """

    tests: tuple[str, ...]
    files: tuple[str, ...]


GROUPS = {
    "recipes": Group(
        ("tests/examples/",),
        (
            "examples/",
            "requirements/run.txt",
            "tfdeploy/agent/supervision/spawn.py",
            "tfdeploy/inside/",
            "tfdeploy/planning/",
        ),
    ),
    "TensorFlow inside a task": Group(
        ("tests/inside/",),
        ("requirements/run.txt", "tfdeploy/agent/outputs/", "tfdeploy/inside/"),
    ),
    "other frameworks": Group(
        ("tests/integration/test_frameworks.py",),
        ("examples/", "tfdeploy/planning/", "tfdeploy/agent/supervision/"),
    ),
    "installs": Group(
        (
            "tests/integration/test_installs.py",
            "tests/integration/test_environments.py",
            "tests/integration/agent/environments/",
            "tests/e2e/test_environments.py",
        ),
        (
            "pyproject.toml",
            "requirements/",
            "tests/hosts/",
            "tfdeploy/environments/",
            "tfdeploy/agent/environments/",
            "tfdeploy/commands/environments.py",
            "tfdeploy/init/",
        ),
    ),
    "round trips": Group(
        ("tests/integration/test_round_trips.py", "tests/integration/test_costs.py"),
        ("tfdeploy/transport/", "tfdeploy/hosts/", "tfdeploy/transfer/", "tfdeploy/commands/"),
    ),
    "OpenSSH": Group(
        ("tests/integration/transport/test_openssh",),
        ("tfdeploy/transport/", "tfdeploy/hosts/"),
    ),
    "login shells": Group(
        ("tests/integration/test_start_files.py",),
        ("tfdeploy/transport/", "tfdeploy/hosts/"),
    ),
    "trials and sweeps": Group(
        ("tests/integration/test_trials.py", "tests/integration/test_sweep.py"),
        (
            "tfdeploy/agent/supervision/",
            "tfdeploy/commands/",
            "tfdeploy/branches/measuring/",
            "tfdeploy/planning/",
            "tfdeploy/shared/",
        ),
    ),
    "TensorBoard": Group(
        ("tests/integration/test_tensorboard.py",),
        (
            "requirements/run.txt",
            "tfdeploy/agent/outputs/",
            "tfdeploy/agent/reports/",
            "tfdeploy/commands/",
            "tfdeploy/results/",
        ),
    ),
    "hostile input": Group(
        ("tests/attacks/test_fuzz.py",),
        (
            "tfdeploy/agent/reports/",
            "tfdeploy/config/",
            "tfdeploy/environments/",
            "tfdeploy/hosts/",
            "tfdeploy/release/",
            "tfdeploy/results/",
            "tfdeploy/run.py",
            "tfdeploy/shared/",
            "tfdeploy/transport/",
            "tfdeploy/trust/",
        ),
    ),
    "machines that fail": Group(
        ("tests/faults/test_machines_",),
        (
            "docker-compose.yml",
            "tests/faults/fault.py",
            "tests/faults/partition.py",
            "tests/hosts/",
            "tests/support/machines.py",
            "tests/support/scripts/",
            "tests/support/sites.py",
            "tfdeploy/agent/",
            "tfdeploy/commands/",
            "tfdeploy/hosts/",
            "tfdeploy/inside/",
            "tfdeploy/planning/",
            "tfdeploy/results/",
            "tfdeploy/shared/",
            "tfdeploy/transfer/",
            "tfdeploy/transport/",
        ),
    ),
}


def hashes(root: Path = ROOT) -> dict[str, str]:
    """Return the hash of each group's files as they are now."""
    return {name: _hash(root, group) for name, group in GROUPS.items()}


def proved(now: dict[str, str], stored: Path = PROVED) -> list[str]:
    """Return the groups whose files are those with which all of their tests passed."""
    passed = json.loads(stored.read_text()) if stored.exists() else {}
    return [name for name, value in now.items() if passed.get(name) == value]


def store(now: dict[str, str], stored: Path = PROVED) -> None:
    """Store that all tests passed with the files that have these hashes."""
    stored.write_text(json.dumps(now, indent=0) + "\n")


def leave_out(names: Iterable[str], items: list[pytest.Item]) -> list[pytest.Item]:
    """Remove the tests of these groups, in place; return them."""
    starts = tuple(start for name in names for start in GROUPS[name].tests)
    left_out = [item for item in items if item.nodeid.startswith(starts)]
    items[:] = [item for item in items if not item.nodeid.startswith(starts)]
    return left_out


def report(names: list[str]) -> list[str]:
    """Return what a developer should know about the groups that are left out, in lines."""
    if not names:
        return []
    costs, lines = order.read(), []
    for name in names:
        group = GROUPS[name]
        seconds = [cost for test, cost in costs.items() if test.startswith(group.tests)]
        run = " ".join(dict.fromkeys(_path(start) for start in group.tests))
        lines.append(f"  {name}: {len(seconds)} tests, {sum(seconds)} s: make test ONE='{run}'")
    return [
        f"left out: {len(names)} of {len(GROUPS)} groups of slow tests, because neither they nor "
        "what they test has changed since they passed (tests/support/affected.py)",
        *lines,
        "  make nightly runs them all",
    ]


def _path(start: str) -> str:
    """Return a path that exists, for the start of tests' ids."""
    return start if (ROOT / start).exists() else f"{start}*"


def _hash(root: Path, group: Group) -> str:
    digest = hashlib.sha256()
    for file in files(root, group):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(f"{content} {file.relative_to(root)}\n".encode())
    return digest.hexdigest()[:16]


def files(root: Path, group: Group) -> list[Path]:
    """Return all files of a group, its tests included, without those that running leaves behind."""
    found: set[Path] = set()
    for start in (*group.files, *group.tests):
        path = root / start
        for match in [path] if path.exists() else path.parent.glob(f"{path.name}*"):
            found.update(match.rglob("*") if match.is_dir() else [match])
    return sorted(file for file in found if file.is_file() and _is_source(file.relative_to(root)))


def _is_source(file: Path) -> bool:
    """Return whether git would track it: not a cache, and nothing that a run of an example left."""
    caches = any(part.startswith(".") or part == "__pycache__" for part in file.parts)
    left_by_runs = file.suffix == ".log" or (file.parts[0] == "examples" and "runs" in file.parts)
    return not caches and not left_by_runs
