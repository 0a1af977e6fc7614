"""What the README promises is what the code says: states, health, commands, files, hosts.toml."""

import re
from pathlib import Path

import pytest

from tfdeploy import cli, inventory, plan
from tfdeploy.agent import health, records

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
WORD = re.compile(r"[A-Z][A-Z_]+")


def words(module):
    return {value for name, value in vars(module).items() if name == value and WORD.match(name)}


def test_the_table_of_states_lists_each_state():
    assert set(re.findall(r"^\| ([A-Z]+) \|", README, re.M)) == words(records)


def test_every_answer_of_a_port_is_explained():
    sentence = next(line for line in README.splitlines() if line.startswith("HEALTH"))
    assert set(WORD.findall(sentence)) - {"HEALTH"} >= words(health)


def test_every_command_of_the_readme_is_one():
    named = set(re.findall(r"^    tfdeploy (\w+)", README, re.M))
    there = {command.callback.__name__ for command in cli.app.registered_commands}
    assert named | {"run"} == there


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:tfdeploy|docs)/[\w./]*)`", README))))
def test_every_file_of_the_readme_is_there(path):
    assert (ROOT / path).exists()


def test_the_hosts_toml_of_the_readme_can_be_planned():
    text = re.search(r"```toml\n(.*?)```", README, re.S)[1]
    made = inventory.parse(text, ROOT / "hosts.toml")
    placed = plan.make(made, {host.name: host.name for host in made.hosts})
    assert [str(p.task) for p in placed.placements[:2]] == ["ps:0", "worker:0"]
    assert placed.placement(placed.chief.task).host == "gpu-01"
    assert len(placed.placements) == 1 + 2 + 15 * 4


FAULTS = (ROOT / "docs" / "faults.md").read_text()


@pytest.mark.parametrize("test", sorted(set(re.findall(r"\b(\w+/test_\w+[a-z])\b", FAULTS))))
def test_every_test_that_the_page_on_faults_names_is_there(test):
    assert (ROOT / "tests" / f"{test}.py").exists()


def test_the_page_on_faults_has_all_48():
    rows = re.findall(r"^\| ([\d, ]+) \|", FAULTS, re.M)
    assert sorted(int(n) for row in rows for n in row.split(", ")) == [*range(1, 49)]
