"""A branch can be deleted: its folder, and its name in BRANCHES. The rest works without it, and has
no word of it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.projects import environment

import tfdeploy
from tfdeploy.branches import BRANCHES

PACKAGE = Path(tfdeploy.__file__).parent
# The commands of each branch, and the words that only it has: identifiers, keys and messages.
COMMANDS = {"live": ("watch", "metrics"), "measuring": ("report", "compare", "sweep")}
WORDS = {
    "live": ("WatchDocument", "WatchedRun", "tfdeploy watch", "Prometheus", "textual"),
    "measuring": ("Comparison", "sweep", "tfdeploy compare", "speedup", "matplotlib.figure"),
}
PUBLIC = Path("__init__.py")  # names everything that is public, also what branches offer
HOSTS = """\
project = "p"
[training]
command = "python train.py"
ready = "process"
[hosts.here]
transport = "local"
workers = 1
"""


@pytest.fixture(params=BRANCHES)
def branch(request):
    return request.param


@pytest.fixture
def without(branch, tmp_path):
    """Return a function that runs tfdeploy without a branch, in a folder with a small project."""
    package = tmp_path / "site/tfdeploy"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(package / "branches" / branch)
    names = package / "branches/__init__.py"
    names.write_text(names.read_text().replace(f'    "{branch}",\n', ""))
    project = tmp_path / "project"
    project.mkdir()
    (project / "hosts.toml").write_text(HOSTS)
    (project / "train.py").write_text("print('trained')\n")
    env = {**environment(project), "PYTHONPATH": str(package.parent)}

    def run(*words):
        done = subprocess.run(
            [sys.executable, "-m", "tfdeploy", *words], cwd=project, env=env, text=True,
            capture_output=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_tfdeploy_trains_without_a_branch(branch, without):
    listed = without("--help")
    assert [each for each in COMMANDS[branch] if f" {each} " in listed] == []
    without("trust")
    assert "worker:0" in without("plan")
    assert "ended with exit 0" in without("run")
    assert "trained" in without("logs")
    assert "SUCCEEDED" in without("status")


@pytest.mark.parametrize("branch", BRANCHES)
def test_the_trunk_has_no_word_of_a_branch(branch):
    files = (file.relative_to(PACKAGE) for file in PACKAGE.rglob("*.py"))
    trunk = [file for file in files if file.parts[0] != "branches" and file != PUBLIC]
    named = re.compile("|".join(rf"\b{word}\b" for word in WORDS[branch]))
    assert [file for file in trunk if named.search((PACKAGE / file).read_text())] == []
    own = "".join(file.read_text() for file in (PACKAGE / "branches" / branch).rglob("*.py"))
    assert [word for word in WORDS[branch] if word not in own] == []
