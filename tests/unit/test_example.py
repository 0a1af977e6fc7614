"""hosts.example.toml is the documentation of hosts.toml: whole, valid, and worth copying."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tfdeploy import inventory, launch, plan, roles, tables
from tfdeploy.cluster import JOBS

FILE = Path(__file__).parents[2] / "hosts.example.toml"
LINES = FILE.read_text().splitlines()
# Keys whose default is one value that a comment can tell.
TOLD = (
    *("path", "checkpoints_on_chief", "save_on_stop", "replicas", "ready_timeout_s"),
    *("stop_grace_s", "evaluator_grace_s", "orphan_timeout_s", "log_limit_mb"),
    *inventory.RestartSettings.model_fields.keys() - {"stall_timeout_s"},
    *("compare", "transport", "python", "ports", "directory"),
    *("gpus", "ps", "workers", "chief", "evaluator", "spare"),
)
COMMENTED = re.compile(r"# (\w+ = .+)")
TABLE = re.compile(r"# (\[.+\])")
TABLES = {"training", "hosts", "defaults", "source", "data", "restart"}
FIELDS = {
    *(set(tables.File.model_fields) - TABLES),
    *inventory.Source.model_fields,
    *inventory.DataSet.model_fields,
    *(set(inventory.Training.model_fields) - set(JOBS)),
    *inventory.JobTraining.model_fields,
    *inventory.RestartSettings.model_fields,
    *inventory.HostSettings.model_fields,
    *(set(inventory.Host.model_fields) - {"name"}),
}


def commented_table():
    """The lines from the first commented-out table on, un-commented."""
    start = next(n for n, line in enumerate(LINES) if TABLE.fullmatch(line))
    return LINES[:start], [line.removeprefix("# ") for line in LINES[start:]]


def lone_lines():
    """The numbers of commented-out keys that stand under a live table."""
    return [n for n, line in enumerate(commented_table()[0]) if COMMENTED.fullmatch(line)]


def example():
    loaded = inventory.load(FILE)
    return loaded, {host.name: host.address or host.hostname for host in loaded.hosts}


@pytest.mark.parametrize("field", sorted(FIELDS))
def test_every_key_stands_in_the_example(field):
    assert any(re.match(rf"(# )?{field} = ", line) for line in LINES)


@pytest.mark.parametrize(
    "table", [*sorted(TABLES - {"hosts", "data"}), "hosts.gpu-01", 'data."data/mnist"']
)
def test_every_table_stands_in_the_example(table):
    assert f"[{table}]" in LINES


def test_no_other_key_stands_in_the_example():
    keys = {found[1] for line in LINES if (found := re.match(r"(?:# )?(\w+) = ", line))}
    assert keys == FIELDS


@pytest.mark.parametrize("number", lone_lines())
def test_each_commented_key_is_valid_where_it_stands(number):
    lines = [*LINES]
    lines[number] = lines[number].removeprefix("# ")
    key = lines[number].split(" = ")[0]
    assert key in FIELDS
    inventory.parse("\n".join(lines), FILE)


def test_the_commented_table_is_a_file_for_one_machine():
    head = 'project = "digits"\ntraining = { command = "python train.py" }\n'
    one = inventory.parse(head + "\n".join(commented_table()[1]), FILE)
    assert [(host.is_local, host.workers) for host in one.hosts] == [(True, 1)]


def test_the_example_plans_as_its_comments_say():
    loaded, addresses = example()
    placed = plan.make(loaded, addresses)
    assert [(str(p.task), p.host, p.gpus) for p in placed.placements] == [
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
    assert str(placed.chief.task) == "worker:0"


def test_the_example_launches():
    loaded, addresses = example()
    placed, data = plan.make(loaded, addresses), {"data/mnist": "data-mnist-1"}
    launches = launch.make(loaded, placed, "run", "release", "secret", data)
    assert launches[2].argv[0] == "/opt/tf-gpu/bin/python"
    assert launches[2].env["TF_GPU_ALLOCATOR"] == "cuda_malloc_async"
    assert [x.task for x in launches if x.data] == [f"worker:{index}" for index in range(6)]


@pytest.mark.parametrize("table", ["training", "restart"])
def test_every_job_may_have_its_own(table):
    sentence = next(x for x in LINES if f"[{table}.chief]" in x and "hold for one job" in x)
    assert set(re.findall(rf"\[{table}\.(\w+)\]", sentence)) == {*JOBS}


def test_every_field_of_a_command_is_listed():
    loaded, addresses = example()
    placed = plan.make(loaded, addresses)
    fields = roles.fields(placed, placed.chief, loaded.training, loaded.hosts[2])
    comments = "\n".join(line for line in LINES if line.startswith("#   "))
    assert {name for name in fields if f"{{{name}}}" in comments} == set(fields)


def told():
    """What the comments say of each key's default, in TOML's words."""
    comments = {}
    key = None
    for line in LINES:
        found = re.match(r"(?:# )?(\w+) = (.*)", line)
        key = found[1] if found else key if line.startswith(" ") else None
        if key:
            comments[key] = comments.get(key, "") + " " + line.rpartition("#")[2].strip()
    values = {
        k: re.search(r'Default: ("[^"]*"|\[.*\]|[\w.]*\w)( |$)', c) for k, c in comments.items()
    }
    return {key: value[1] for key, value in values.items() if value and value[1] != "none"}


def written(default):
    """A default as one writes it."""
    ports = {tuple(range(2222, 2300)): "2222-2299", (): 0}
    return ports.get(default, [*default]) if isinstance(default, tuple) else default


@pytest.mark.parametrize("key", sorted(TOLD))
def test_the_default_that_is_told_is_the_models_own(key):
    tables = (inventory.Source, inventory.DataSet, inventory.Training, inventory.RestartSettings)
    models = (inventory.Host, *tables)
    default = next(m.model_fields[key].default for m in models if key in m.model_fields)
    assert tomllib.loads(f"value = {told()[key]}")["value"] == written(default)
