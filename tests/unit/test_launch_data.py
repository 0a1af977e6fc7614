"""Which tasks see which data, and the places where none can be."""

from __future__ import annotations

import pytest

from tfdeploy import launch
from tfdeploy.errors import PlanError
from unit.made import inventory, plan

HOSTS = "[hosts.p]\nps = 1\n[hosts.w]\nworkers = 1\nchief = true\n[hosts.e]\nevaluator = true"


def seen(table):
    """{task: the data that it sees}"""
    made = inventory(HOSTS, top=table)
    ids = {place: f"{place}-1" for place in made.data}
    launches = launch.make(made, plan(HOSTS), "run", "f00d", "s3cret", ids)
    return {each.task: each.data for each in launches}


def refusal(table, files=("train.py",), training=""):
    made = inventory(HOSTS, top=table, training=training)
    with pytest.raises(PlanError) as refused:
        launch.check_data(made, plan(HOSTS), files)
    return refused.value.message, refused.value.hint


def test_all_tasks_but_ps_see_it():
    a = {"a": "a-1"}
    assert seen("[data.a]") == {"ps:0": {}, "worker:0": a, "chief:0": a, "evaluator:0": a}


def test_tasks_of_the_jobs_that_are_named_see_it():
    told = seen('[data.a]\njobs = ["ps"]\n[data.b]\njobs = ["ps", "chief"]')
    assert told["ps:0"] == {"a": "a-1", "b": "b-1"}
    assert (told["worker:0"], told["chief:0"]) == ({}, {"b": "b-1"})


def test_data_that_no_task_needs_is_refused():
    made = inventory(top='[data.a]\njobs = ["chief", "evaluator"]')
    with pytest.raises(PlanError) as refused:
        launch.check_data(made, plan("[hosts.a]\nworkers = 1"), ())
    assert refused.value.message == "data.a.jobs: no task is a chief or evaluator"
    assert refused.value.hint == "the jobs that there are: worker"


@pytest.mark.parametrize("file", ["data/a", "data/a/b/c"])
def test_a_place_where_the_source_has_files_is_refused(file):
    assert refusal('[data."data/a"]', ["data/other", file]) == (
        f"data.data/a: the source has {file} at this place",
        'add "/data/a" to source.exclude, or give it another place',
    )


def test_a_place_within_what_is_a_file_of_the_source_is_refused():
    assert refusal('[data."data/a"]', ["data"]) == (
        "data.data/a: the source has data at this place",
        'add "/data" to source.exclude, or give it another place',
    )


@pytest.mark.parametrize("folder", ["data/a", "./data/a/", "data/a/out", "data"])
def test_a_place_where_checkpoints_are_saved_is_refused(folder):
    message, _ = refusal('[data."data/a"]', training=f'checkpoint_dir = "{folder}"')
    assert message == (
        f"data.data/a is read-only, and training.checkpoint_dir, {folder}, would lie in it or "
        "around it"
    )


@pytest.mark.parametrize("folder", ["data/ab", "/data/a", "checkpoints", "."])
def test_other_folders_hinder_no_data(folder):
    made = inventory(HOSTS, top='[data."data/a"]', training=f'checkpoint_dir = "{folder}"')
    launch.check_data(made, plan(HOSTS), ["data/labels", "data/a.py", "a"])
