"""Every example has its files, hosts that can be planned, and a short page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import excerpts, transcript

from tfdeploy.commands import plan as steps
from tfdeploy.commands.preflight import scripts
from tfdeploy.config import inventory
from tfdeploy.planning import launch, placing
from tfdeploy.planning.roles import RunNames
from tfdeploy.trust import sensitive_values

EXAMPLES = Path(__file__).parents[2] / "examples"
TRANSCRIPTS = EXAMPLES.parent / "tests/transcripts"
RECIPES = sorted(script.parent for script in EXAMPLES.glob("*/train.py"))
# No training: they call tfdeploy.
MEASURING = {*EXAMPLES.glob("figures/*.py"), EXAMPLES / "replication.py"}
SCRIPTS = sorted({*EXAMPLES.glob("*.py"), *EXAMPLES.glob("*/*.py")} - MEASURING)
HOSTS = sorted(EXAMPLES.glob("*/hosts*.toml"))
TESTS = "".join(path.read_text() for path in Path(__file__).parent.glob("*.py"))
INDEX = (EXAMPLES / "README.md").read_text()


def name(path: Path) -> str:
    return path.relative_to(EXAMPLES).as_posix()


@pytest.mark.parametrize("recipe", RECIPES, ids=name)
def test_a_recipe_has_a_page_hosts_files_a_test_and_a_row_in_the_index(recipe):
    assert {"hosts.toml", "hosts.ssh.toml", "README.md"} <= {path.name for path in recipe.iterdir()}
    lines = (recipe / "README.md").read_text().splitlines()
    assert lines[0].startswith("# ")
    assert len(lines) <= 90
    assert f"]({recipe.name}/)" in INDEX or f"]({recipe.name}/README.md)" in INDEX
    assert re.search(rf'"{recipe.name}"', TESTS)


@pytest.mark.parametrize("recipe", RECIPES, ids=name)
def test_a_page_shows_what_tasks_and_tfdeploy_print(recipe):
    """That its tasks have printed it is checked when the recipe is trained."""
    assert excerpts.unknown_lines((recipe / "README.md").read_text()) == []


def test_the_page_of_digits_shows_what_the_first_command_has_printed():
    shown = transcript.read(TRANSCRIPTS / "first_command.console").shown()
    run = next(step for step in shown if step.text == "tfdeploy run")
    lines = [line.partition("@this-machine | ") for line in run.output]
    logs = {task: "\n".join(text for other, _, text in lines if other == task)
            for task, _, _ in lines if ":" in task}  # fmt: skip
    assert "worker:0" in logs
    assert excerpts.unprinted((EXAMPLES / "digits/README.md").read_text(), logs) == []


def test_an_excerpt_has_each_tasks_lines_in_their_order():
    page = (
        "It prints:\n\n    a:0@this-machine | step 1 of 9\n    …\n    a:0@this-machine | ends, …\n"
    )
    assert excerpts.unprinted(page, {"a:0": "step 0 of 9\nstep 3 of 9\nends, as it must"}) == []
    assert excerpts.unprinted(page, {"a:0": "ends, as it must\nstep 0 of 9"}) == ["a:0 | ends, …"]
    assert excerpts.unprinted(page, {"a:0": "step 0\nends, 3"}) == ["a:0 | step 1 of 9"]


@pytest.mark.parametrize("hosts", HOSTS, ids=name)
def test_a_hosts_file_can_be_planned_and_its_command_exists(hosts):
    read = inventory.load(hosts)
    placed = placing.make_plan(read, {host.name: host.address or host.name for host in read.hosts})
    release = steps.source_release(read)
    scripts.check_scripts(read, release)
    launches = launch.make(read, placed, RunNames("run", release.id), "secret")
    for words in (each.process.argv for each in launches):
        module = words[words.index("-m") + 1] if "-m" in words else ""
        assert not module or f"{module.replace('.', '/')}.py" in release.manifest


def test_hosts_toml_is_this_machine_and_the_template_is_not():
    local = {file: [host.is_local for host in inventory.load(file).hosts] for file in HOSTS}
    assert local == {
        file: [False] * len(local[file]) if "ssh" in file.name else [True] for file in HOSTS
    }


def test_a_hosts_file_needs_trust_only_for_its_hosts_and_its_command():
    for file in HOSTS:
        loaded = inventory.load(file)
        assert sensitive_values.on_controller(loaded) == ()
        keys = {value.key for value in sensitive_values.on_hosts(loaded) if not value.host}
        assert {key.rpartition(".")[2] for key in keys} == {"command"}, file


def test_no_script_mentions_tfdeploy():
    assert [script for script in SCRIPTS if "tfdeploy" in script.read_text()] == []


def test_the_index_names_only_recipes():
    named = set(re.findall(r"\]\((\w+)/(?:README\.md)?\)", INDEX))
    assert named == {recipe.name for recipe in RECIPES}
