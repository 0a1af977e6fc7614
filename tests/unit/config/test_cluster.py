"""TensorFlow's terms: the spelling and the order of tasks, and TF_CONFIG."""

from __future__ import annotations

import json

import pytest

from tfdeploy.config.cluster import Task, tf_config
from tfdeploy.errors import PlanError


def test_a_task_has_one_spelling_for_messages_and_one_for_paths():
    task = Task("worker", 1)
    assert (str(task), task.file_name) == ("worker:1", "worker-1")


def test_tasks_sort_in_the_order_of_their_start():
    last_first = ["evaluator:0", "chief:0", "worker:10", "worker:2", "ps:1", "ps:0"]
    tasks = [Task.parse(text) for text in last_first]
    assert sorted(tasks) == tasks[::-1]


@pytest.mark.parametrize("text", ["worker:1", "worker-1"])
def test_parse_accepts_both_spellings_of_a_task(text):
    assert Task.parse(text) == Task("worker", 1)


@pytest.mark.parametrize(
    "text", ["worker", "worker:", "master:0", "worker:x", "worker:-1", "", ":0"]
)
def test_parse_refuses_text_that_is_not_a_task(text):
    with pytest.raises(PlanError) as refused:
        Task.parse(text)
    assert str(refused.value) == (
        f'"{text}" is not a task\n'
        "  name a task, such as worker:0, or one of the jobs ps, worker, chief, evaluator"
    )


def test_every_job_but_the_evaluator_is_in_the_cluster():
    in_cluster = {job: Task(job, 0).in_cluster for job in ("ps", "worker", "chief", "evaluator")}
    assert in_cluster == {"ps": True, "worker": True, "chief": True, "evaluator": False}


def test_tf_config_is_the_json_that_tensorflow_reads():
    cluster = {"ps": ("a:1",), "worker": ("b:1", "c:1")}
    assert json.loads(tf_config(cluster, Task("worker", 1))) == {
        "cluster": {"ps": ["a:1"], "worker": ["b:1", "c:1"]},
        "task": {"type": "worker", "index": 1},
    }


def test_tf_config_refuses_a_cluster_with_an_evaluator():
    with pytest.raises(PlanError, match="an evaluator can't be part of the cluster"):
        tf_config({"evaluator": ("a:1",)}, Task("evaluator", 0))
