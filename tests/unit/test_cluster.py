"""TensorFlow's nouns: how tasks are written, read and ordered, and what TF_CONFIG says."""

from __future__ import annotations

import json

import pytest

from tfdeploy.cluster import Task, tf_config
from tfdeploy.errors import PlanError


def test_a_task_is_written_for_people_and_for_paths():
    task = Task("worker", 1)
    assert (str(task), task.file_name) == ("worker:1", "worker-1")


def test_tasks_are_ordered_as_they_start():
    told = ["evaluator:0", "chief:0", "worker:10", "worker:2", "ps:1", "ps:0"]
    assert sorted(map(Task.parse, told)) == [Task.parse(task) for task in reversed(told)]


@pytest.mark.parametrize("text", ["worker:1", "worker-1"])
def test_a_task_is_read_as_people_and_paths_write_it(text):
    assert Task.parse(text) == Task("worker", 1)


@pytest.mark.parametrize(
    "text", ["worker", "worker:", "master:0", "worker:x", "worker:-1", "", ":0"]
)
def test_what_is_no_task_is_refused(text):
    with pytest.raises(PlanError) as refused:
        Task.parse(text)
    assert str(refused.value) == (
        f'"{text}" is not a task\n  name one of ps, worker, chief, evaluator and an index: worker:0'
    )


def test_only_an_evaluator_is_outside_of_the_cluster():
    inside = {job: Task(job, 0).in_cluster for job in ("ps", "worker", "chief", "evaluator")}
    assert inside == {"ps": True, "worker": True, "chief": True, "evaluator": False}


def test_tf_config_is_the_json_that_tensorflow_reads():
    cluster = {"ps": ("a:1",), "worker": ("b:1", "c:1")}
    assert json.loads(tf_config(cluster, Task("worker", 1))) == {
        "cluster": {"ps": ["a:1"], "worker": ["b:1", "c:1"]},
        "task": {"type": "worker", "index": 1},
    }


def test_tf_config_of_a_cluster_with_an_evaluator_is_refused():
    with pytest.raises(PlanError, match="an evaluator can't be part of the cluster"):
        tf_config({"evaluator": ("a:1",)}, Task("evaluator", 0))
