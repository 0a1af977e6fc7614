"""The commands by hand on a recipe's page start the same processes as tfdeploy does."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tfdeploy.config import inventory
from tfdeploy.planning import launch, placing
from tfdeploy.planning.roles import RunNames

EXAMPLES = Path(__file__).parents[2] / "examples"
SECTION = re.compile(r"^The same by hand, .*:\n\n((?:    .*\n)+)", re.M)
PAGES = {path.parent: path.read_text() for path in sorted(EXAMPLES.glob("*/README.md"))}
SECTIONS = {path: SECTION.findall(page) for path, page in PAGES.items() if "same by hand" in page}
RECORDED = ("TF_CONFIG", "JOB_NAME", "TASK_INDEX", "PS_HOSTS", "WORKER_HOSTS")
# In place of Python: it prints its words, and the variables that say which task it is.
PYTHON = f"""#!/usr/bin/env python3
import json, os, sys
print(json.dumps([sys.argv[1:], {{k: os.environ[k] for k in {RECORDED} if k in os.environ}}]))
"""


@pytest.mark.parametrize("recipe", SECTIONS, ids=lambda path: path.name)
def test_the_commands_by_hand_are_those_of_tfdeploy(recipe, tmp_path):
    [commands] = SECTIONS[recipe]
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(PYTHON)
    python.chmod(0o755)
    env = {name: value for name, value in os.environ.items() if name not in RECORDED}
    env["PATH"] = f"{python.parent}:{env['PATH']}"
    done = subprocess.run(
        ["bash", "-e"], input=commands, cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    by_hand = [json.loads(line) for line in done.stdout.splitlines()]
    planned = launches(recipe, tmp_path)
    assert [sorted(map(anywhere, words)) for words, _ in by_hand] == [
        sorted(map(anywhere, each.process.argv[1:])) for each in planned
    ]
    for (_, variables), each in zip(by_hand, planned, strict=True):
        assert {name: parsed(value) for name, value in variables.items()} == {
            name: parsed(each.process.env[name]) for name in variables
        }
    by_words = len({*map(tuple, (words for words, _ in by_hand))}) == len(planned)
    assert by_words or all(variables for _, variables in by_hand)
    for name, text in planned[0].directory.files.items():
        assert json.loads((tmp_path / name).read_text()) == json.loads(text)


@pytest.mark.parametrize("recipe", SECTIONS, ids=lambda path: path.name)
def test_fit_of_keras_2_is_selected_by_hand_too(recipe):
    [commands] = SECTIONS[recipe]
    legacy = 'TF_USE_LEGACY_KERAS = "1"' in (recipe / "hosts.toml").read_text()
    assert ("export TF_USE_LEGACY_KERAS=1\n" in commands) == legacy


def launches(recipe, folder):
    """Return what tfdeploy starts, with the ports of the pages."""
    hosts = folder / "hosts.toml"
    text = (recipe / "hosts.toml").read_text()
    hosts.write_text(text.replace('ports = "auto"', 'ports = "2222-2229"'))
    read = inventory.load(hosts)
    plan = placing.make_plan(read, {host.name: "localhost" for host in read.hosts})
    return launch.make(read, plan, RunNames("run", "release"), "secret")


def anywhere(word):
    """Return a word with any folder for checkpoints: by hand they are not in the repository."""
    return re.sub(r"(--checkpoint_dir)=.*", r"\1=", word)


def parsed(value):
    return json.loads(value) if value.startswith("{") else value
