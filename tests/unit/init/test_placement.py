"""Which machine gets which tasks."""

from __future__ import annotations

import pytest

from tfdeploy.init import strategy
from tfdeploy.init.placement import place, task_count
from unit.init.machines import GB, machine

PS, CHIEF = strategy.PS_AND_WORKERS, strategy.PS_AND_CHIEF
EACH, WORKERS = strategy.ALL_GPUS_EACH, strategy.WORKERS
TUNER, SERVICE = strategy.CHIEF_AND_WORKERS, strategy.DATA_SERVICE
ONE, MIRRORED = strategy.ONE, strategy.ONE_WITH_ALL_GPUS
SPARE = {"spare": True}
PER_GPU = {"gpus": 4, "workers": "per-gpu"}


@pytest.mark.parametrize(
    ("tasks", "gpus", "expected"),
    [
        (PS, [0], [{"workers": 2, "ps": 1}]),
        (PS, [1], [{"gpus": 1, "workers": 1, "ps": 1}]),
        (PS, [0, 0], [{"workers": 1, "ps": 1}, {"workers": 1}]),
        (PS, [0, 4, 4], [{"ps": 1}, PER_GPU, PER_GPU]),
        (PS, [4, 4], [{**PER_GPU, "ps": 1}, PER_GPU]),
        (PS, [0, 0, 0, 1], [{"ps": 1}, SPARE, SPARE, {"gpus": 1, "workers": 1}]),
        (CHIEF, [0], [{"workers": 2, "ps": 1, "chief": True}]),
        (CHIEF, [4, 0], [PER_GPU, {"ps": 1, "chief": True}]),
        (CHIEF, [4], [{**PER_GPU, "ps": 1, "chief": True, "gpus_per_chief": 0}]),
        (TUNER, [0], [{"workers": 2, "chief": True}]),
        (TUNER, [0, 0], [{"workers": 1, "chief": True}, {"workers": 1}]),
        (TUNER, [4, 0], [PER_GPU, {"chief": True}]),
        (TUNER, [1], [{"gpus": 1, "workers": 1, "chief": True, "gpus_per_chief": 0}]),
        (TUNER, [4, 0, 0], [PER_GPU, {"chief": True}, SPARE]),
        (SERVICE, [0], [{"workers": 2, "ps": 1, "chief": True}]),
        (SERVICE, [0, 0], [{"ps": 1, "chief": True}, {"workers": 1}]),
        (SERVICE, [0, 2, 0], [{"workers": 1}, {"gpus": 2, "ps": 1, "chief": True}, {"workers": 1}]),
        (EACH, [0], [{"workers": 2}]),
        (EACH, [0, 0], [{"workers": 1}, {"workers": 1}]),
        (EACH, [4, 4], [{"gpus": 4, "workers": 1, "gpus_per_worker": 4}] * 2),
        (EACH, [1, 0], [{"gpus": 1, "workers": 1}, SPARE]),
        (WORKERS, [4], [PER_GPU]),
        (MIRRORED, [0, 4], [SPARE, {"gpus": 4, "workers": 1, "gpus_per_worker": 4}]),
        (ONE, [4, 1], [{"gpus": 1, "workers": 1}, {"gpus": 1, "spare": True}]),
        (ONE, [0], [{"workers": 1}]),
    ],
)
def test_the_tasks_are_placed_by_gpus(tasks, gpus, expected):
    machines = [machine(f"h{n}", count) for n, count in enumerate(gpus)]
    keys = place(tasks, machines).keys
    assert [keys[each.name] for each in machines] == expected


def test_without_gpus_one_worker_goes_to_the_machine_with_the_most_memory():
    machines = [machine("small"), machine("large", memory_bytes=128 * GB)]
    placed = place(ONE, machines)
    assert placed.keys["large"] == {"workers": 1}
    assert placed.reasons == ("large has the most memory and runs the worker; small: spare",)


@pytest.mark.parametrize("tasks", [PS, WORKERS])
@pytest.mark.parametrize(("most", "workers"), [(0, 2), (1, 1), (3, 2)])
def test_a_second_worker_is_tried_only_if_the_program_has_room_for_it(tasks, most, workers):
    placed = place(tasks, [machine("a")], most)
    assert placed.keys["a"]["workers"] == workers
    assert placed.reasons[0].startswith(f"{workers} worker")


def test_a_ps_on_a_machine_without_gpus_is_explained():
    assert place(PS, [machine("cpu"), machine("gpu", 2)]).reasons == (
        "cpu: no GPU, so a ps, which needs none",
    )


@pytest.mark.parametrize(
    ("keys", "count"),
    [(SPARE, 0), (PER_GPU, 4), ({"ps": 1, "workers": 2, "chief": True}, 4), ({"workers": 1}, 1)],
)
def test_tasks_are_counted(keys, count):
    assert task_count(keys) == count
