"""hosts.example.toml documents every key of hosts.toml, and is itself a valid file."""

from __future__ import annotations

import re
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest

from tfdeploy.config import inventory
from tfdeploy.config import models as tables
from tfdeploy.config.cluster import JOBS
from tfdeploy.planning import launch, placing, roles
from tfdeploy.planning.roles import RunNames

FILE = Path(__file__).parents[3] / "hosts.example.toml"
LINES = FILE.read_text().splitlines()
COMMENTED = re.compile(r"# (\w+ = .+)")
TABLE = re.compile(r"# (\[.+\])")
TABLES = {"training", "hosts", "defaults", "source", "data", "env", "restart", "notify", "trials"}
FIELDS = {
    *(set(tables.HostsFile.key_names()) - TABLES),
    *inventory.Source.key_names(),
    *inventory.DataSet.key_names(),
    *inventory.PythonEnvironment.key_names(),
    *(set(inventory.Training.key_names()) - set(JOBS)),
    *inventory.JobTraining.key_names(),
    *inventory.RestartSettings.key_names(),
    *inventory.Notify.key_names(),
    *tables.Trials.key_names(),
    *inventory.HostSettings.key_names(),
    *(set(inventory.Host.key_names()) - {"name"}),
}


def commented_table():
    """Return the lines before the first commented-out table, and the rest uncommented."""
    start = next(n for n, line in enumerate(LINES) if TABLE.fullmatch(line))
    return LINES[:start], [line.removeprefix("# ") for line in LINES[start:]]


def commented_keys():
    """Return the line numbers of commented-out keys of tables that are not commented out."""
    return [n for n, line in enumerate(commented_table()[0]) if COMMENTED.fullmatch(line)]


def example():
    loaded = inventory.load(FILE)
    return loaded, {host.name: host.address or host.hostname for host in loaded.hosts}


def test_the_example_has_every_table():
    tables = {*(TABLES - {"hosts", "data"}), "hosts.gpu-01", 'data."data/mnist"'}
    assert {f"[{table}]" for table in tables} - {*LINES} == set()


def test_the_example_has_every_key_and_no_other():
    keys = {found[1] for line in LINES if (found := re.match(r"(?:# )?(\w+) = ", line))}
    assert keys == FIELDS


def test_a_commented_key_is_valid_in_its_table():
    for number in commented_keys():
        lines = [*LINES]
        lines[number] = lines[number].removeprefix("# ")
        assert lines[number].split(" = ")[0] in FIELDS
        inventory.parse("\n".join(lines), FILE)  # its message names the key


def test_the_commented_table_is_a_file_for_one_machine():
    head = 'project = "digits"\ntraining = { command = "python train.py" }\n'
    one = inventory.parse(head + "\n".join(commented_table()[1]), FILE)
    assert [(host.is_local, host.workers) for host in one.hosts] == [(True, 1)]


def test_the_example_plans_as_its_comments_say():
    loaded, addresses = example()
    result = placing.make_plan(loaded, addresses)
    assert [(str(p.task), p.host, p.gpus) for p in result.placements] == [
        ("ps:0", "ps-01", ()),
        ("ps:1", "ps-02", ()),
        ("worker:0", "gpu-01", (0, 1)),
        ("worker:1", "gpu-01", (2, 3)),
        ("worker:2", "gpu-02", (1,)),
        ("worker:3", "gpu-02", (3,)),
        ("worker:4", "gpu-11", (0,)),
        ("worker:5", "gpu-12", (0,)),
        ("evaluator:0", "eval-01", ()),
    ]
    assert str(result.chief.task) == "worker:0"


def test_the_example_launches():
    loaded, addresses = example()
    result, data = placing.make_plan(loaded, addresses), {"data/mnist": "data-mnist-1"}
    launches = launch.make(loaded, result, RunNames("run", "release", data=data), "secret")
    assert launches[2].process.argv[0] == "/opt/tf-gpu/bin/python"
    assert launches[2].process.env["TF_GPU_ALLOCATOR"] == "cuda_malloc_async"
    assert [x.task for x in launches if x.directory.data] == [
        f"worker:{index}" for index in range(6)
    ]


@pytest.mark.parametrize("table", ["training", "restart"])
def test_the_example_names_the_table_of_each_job(table):
    sentence = next(x for x in LINES if f"[{table}.chief]" in x and "for one" in x)
    assert set(re.findall(rf"\[{table}\.(\w+)\]", sentence)) == {*JOBS}


def test_every_field_of_a_command_is_listed():
    loaded, addresses = example()
    result = placing.make_plan(loaded, addresses)
    fields = roles.template_fields(result, result.chief, loaded.training, "python3")
    comments = "\n".join(line for line in LINES if line.startswith("#   "))
    assert {name for name in fields if f"{{{name}}}" in comments} == set(fields)


def comments():
    """Return the comments of each key, joined."""
    found = {}
    key = None
    for line in LINES:
        match = re.match(r"(?:# )?(\w+) = (.*)", line)
        key = match[1] if match else key if line.startswith(" ") else None
        if key:
            found[key] = found.get(key, "") + " " + line.rpartition("#")[2].strip()
    return found


def stated_defaults():
    """Return the default of each key whose comments state one value, in TOML."""
    found = {}
    for key, comment in comments().items():
        stated = re.search(r'Default: ("[^"]*"|\[.*\]|[\w.]*\w)( |$)', comment)
        with suppress(tomllib.TOMLDecodeError):  # it is in words
            found[key] = tomllib.loads(f"v = {stated[1] if stated else ''}")["v"]
    return found


def as_written(default):
    """Return a default as a user writes it."""
    ports = {tuple(range(2222, 2300)): "2222-2299", (): 0}
    return ports.get(default, [*default]) if isinstance(default, tuple) else default


# Required keys, and one whose default is in the comment above it.
WITHOUT_DEFAULT = {"project", "command", "role"}
# A key whose default depends on others.
DEPENDENT = {"ends_with"}


def test_the_example_states_the_default_of_each_key():
    stated = {key for key, comment in comments().items() if "Default: " in comment}
    assert FIELDS - WITHOUT_DEFAULT - stated == set()


def test_a_stated_default_is_the_default_of_the_code():
    classes = (inventory.Host, inventory.Source, inventory.DataSet, inventory.Training,
               inventory.RestartSettings, tables.Trials, tables.HostsFile)  # fmt: skip
    stated = {key: value for key, value in stated_defaults().items() if key not in DEPENDENT}
    assert {"ports", "outputs", "delay_s", "seed", "shared_fs"} <= {*stated}
    assert stated == {
        key: as_written(next(getattr(each, key) for each in classes if key in each.key_names()))
        for key in stated
    }
