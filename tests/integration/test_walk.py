"""Which functions `tfdeploy start` of a plain program enters: what it does not use, it does not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

WALK = Path(__file__).parents[1] / "bench" / "walk.py"
# The files that only runs with a certain key of hosts.toml need.
UNUSED = re.compile(
    r"planning/(trials|replanning|free_hosts|links)|commands/(environments|trials|free_hosts|queue)|"
    r"environments/(?!versions)|branches/\w+/(?!commands)|transfer/|tensorboard|init/|"
    r"agent/(machine/(gpus|devices|interfaces)|reports/(notify|pace|trials)|supervision/(trials|turn)|"
    r"supervision/replication/(?!replicas))"
)
# As measured; a function more has a reason.
MOST = {"controller": 415, "agent": 210}


@pytest.fixture(scope="module")
def walk():
    """Return the functions of each side, by file."""
    done = subprocess.run([sys.executable, WALK, "--list"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    sides = {}
    for line in done.stdout.splitlines():
        if found := re.fullmatch(r"(controller|agent): \d+ functions in \d+ files", line):
            files = sides[found[1]] = {}
        elif (found := re.fullmatch(r"  (\S+): (.+)", line)) and sides:
            files[found[1]] = found[2].split(", ")
    return sides


def test_a_start_enters_no_feature_that_it_does_not_use(walk):
    assert [file for files in walk.values() for file in files if UNUSED.search(file)] == []


def test_a_start_enters_few_functions(walk):
    counts = {side: sum(map(len, files.values())) for side, files in walk.items()}
    assert {side: count for side, count in counts.items() if count > MOST[side]} == {}
    assert counts.keys() == MOST.keys()
