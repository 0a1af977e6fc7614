"""Data sets: which tasks read them, and the places that are refused."""

from __future__ import annotations

import pytest
from support.builders import make_inventory, make_plan

from tfdeploy.errors import PlanError
from tfdeploy.planning import checks, launch
from tfdeploy.planning.roles import RunNames

HOSTS = "[hosts.p]\nps = 1\n[hosts.w]\nworkers = 1\nchief = true\n[hosts.e]\nevaluator = true"


def data_of_tasks(table):
    """Return {task: {place: release}}."""
    inventory = make_inventory(HOSTS, top=table)
    ids = {place: f"{place}-1" for place in inventory.data}
    launches = launch.make(inventory, make_plan(HOSTS), RunNames("run", "f00d", data=ids), "s3cret")
    return {each.task: each.directory.data for each in launches}


def data_refusal(table, files=("train.py",), training=""):
    inventory = make_inventory(HOSTS, top=table, training=training)
    with pytest.raises(PlanError) as refused:
        checks.check_data(inventory, make_plan(HOSTS), files)
    return refused.value.message, refused.value.hint


def test_by_default_every_task_but_ps_reads_a_data_set():
    a = {"a": "a-1"}
    assert data_of_tasks("[data.a]") == {"ps:0": {}, "worker:0": a, "chief:0": a, "evaluator:0": a}


def test_only_the_named_jobs_read_a_data_set():
    data = data_of_tasks('[data.a]\njobs = ["ps"]\n[data.b]\njobs = ["ps", "chief"]')
    assert data["ps:0"] == {"a": "a-1", "b": "b-1"}
    assert (data["worker:0"], data["chief:0"]) == ({}, {"b": "b-1"})


def launched(table, training):
    inventory = make_inventory(HOSTS, top=table, training=training)
    ids = dict.fromkeys(inventory.data, "id")
    launches = launch.make(inventory, make_plan(HOSTS), RunNames("run", "f00d", data=ids), "s3cret")
    return {each.task: each.in_directory("/w") for each in launches}


def test_the_field_of_a_data_set_is_its_absolute_path_in_the_tasks_directory():
    training = """
role_args = ["--data={data:data/a}/part", "{{data:a}}"]
role_env = {DATA = "{data:data/a}"}
role_files = {c = "{data:data/a} {data:data/a}"}"""
    task = launched('[data."data/a"]', training)["worker:0"]
    assert task.process.argv[2:] == ["--data=/w/data/a/part", "{data:a}"]
    assert task.process.env["DATA"] == "/w/data/a"
    assert task.directory.files == {"c": "/w/data/a /w/data/a"}


def field_refusal(table, training):
    with pytest.raises(PlanError) as refused:
        launched(table, training)
    return refused.value.message, refused.value.hint


def test_the_field_of_an_unknown_data_set_suggests_the_nearest_one():
    message, hint = field_refusal('[data."data/mnist"]\n[data.b]', 'role_args = ["{data:mnist}"]')
    assert message == "training.role_args: unknown field {data:mnist}"
    assert hint == (
        "did you mean {data:data/mnist}? the data sets are b, data/mnist; for the text itself "
        "write {{data:mnist}}"
    )


def test_the_field_of_a_data_set_without_any_data_set_is_refused():
    message, hint = field_refusal("", 'role_args = ["{data:mnist}"]')
    assert message == "training.role_args: unknown field {data:mnist}"
    assert hint == "hosts.toml has no [data] table; for the text itself write {{data:mnist}}"


def test_the_field_of_a_data_set_that_the_task_does_not_see_is_refused():
    table, training = '[data.a]\njobs = ["worker", "chief"]', 'role_args = ["{data:a}"]'
    assert field_refusal(table, training) == (
        "training.role_args: evaluator:0 does not see the data set of {data:a}",
        'add its job to jobs of [data."a"], or give the job its own value in a table such as '
        "[training.evaluator]",
    )


def test_a_ps_with_the_workers_command_gets_the_path_of_their_data():
    tasks = launched("[data.a]", 'role_args = ["{data:a}"]')
    assert [task.process.argv[2:] for task in tasks.values()] == [["/w/a"]] * len(tasks)


def test_data_that_no_task_reads_is_refused():
    inventory = make_inventory(top='[data.a]\njobs = ["chief", "evaluator"]')
    with pytest.raises(PlanError) as refused:
        checks.check_data(inventory, make_plan("[hosts.a]\nworkers = 1"), ())
    assert refused.value.message == "data.a.jobs: no task is a chief or evaluator"
    assert refused.value.hint == "the plan has the jobs worker"


@pytest.mark.parametrize("file", ["data/a", "data/a/b/c"])
def test_a_place_with_files_of_the_source_is_refused(file):
    assert data_refusal('[data."data/a"]', ["data/other", file]) == (
        f"data.data/a: its path is taken by {file} of the source",
        'add "/data/a" to source.exclude, or give the data set another path',
    )


def test_a_place_inside_a_file_of_the_source_is_refused():
    assert data_refusal('[data."data/a"]', ["data"]) == (
        "data.data/a: its path is taken by data of the source",
        'add "/data" to source.exclude, or give the data set another path',
    )


@pytest.mark.parametrize("folder", ["data/a", "./data/a/", "data/a/out", "data"])
def test_a_place_that_overlaps_the_checkpoints_is_refused(folder):
    message, _ = data_refusal('[data."data/a"]', training=f'checkpoint_dir = "{folder}"')
    assert message == (
        f"data.data/a is read-only, but it overlaps training.checkpoint_dir, {folder}"
    )


@pytest.mark.parametrize("folder", ["data/ab", "/data/a", "checkpoints", "."])
def test_other_folders_are_accepted_beside_data(folder):
    inventory = make_inventory(
        HOSTS, top='[data."data/a"]', training=f'checkpoint_dir = "{folder}"'
    )
    checks.check_data(inventory, make_plan(HOSTS), ["data/labels", "data/a.py", "a"])
