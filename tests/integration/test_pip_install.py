"""What `make` prints while pip installs: some lines, and the reason of a failure."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

from support import pip_install, wheels

if TYPE_CHECKING:
    from pathlib import Path


def install(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    offline = ["--no-index", "--find-links", folder, "--target", folder / "target"]
    command = [sys.executable, pip_install.__file__, "two packages", *offline, *arguments]
    return subprocess.run([*map(str, command)], capture_output=True, text=True)


def test_the_packages_that_pip_installs_are_counted(tmp_path):
    wheels.make(tmp_path, "one", requires=("two",))
    wheels.make(tmp_path, "two")
    done = install(tmp_path, "one")
    assert done.returncode == 0, done.stderr
    first, *_, installing, last = re.sub(r" +\d+ s  ", "", done.stdout).splitlines()
    assert (first, last) == ("Installing two packages", "done")
    assert installing == "unpacking 2 packages"


def test_a_failure_has_pips_own_words_and_exit_code(tmp_path):
    done = install(tmp_path, "missing")
    assert done.returncode == 1
    assert "No matching distribution found for missing" in done.stderr
    assert "done" not in done.stdout


def test_only_large_downloads_have_lines_of_their_own():
    progress = pip_install.Progress()
    lines = {
        "Collecting tensorflow-cpu<2.22,>=2.21 (from tfdeploy==0.1.0)": False,
        "Downloading grpcio-1.81.0-cp311.whl (6.7 MB)": False,
        "Downloading tensorflow_cpu-2.21.0-cp311.whl (293.7 MB)": True,
        "Downloading numpy-2.4.6-cp311.whl.metadata (62 kB)": False,
        "Using cached numpy-2.4.6-cp311.whl (16.8 MB)": False,
    }
    assert {line: progress.take(line) for line in lines} == lines
    assert progress.text == "downloading tensorflow_cpu-2.21.0-cp311.whl (293.7 MB)"
