"""For how long GPUs are idle, by the lines of their history."""

from __future__ import annotations

import time

import pytest

from tfdeploy.agent.reports.history import IdleGpus, gpu_line
from tfdeploy.shared.protocol.reports import GpuUse


@pytest.fixture
def clock(monkeypatch):
    """The time of the supervisor, which a test moves."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def gpus(tmp_path, clock):
    """A function that adds a line 30 seconds later, and returns for how long the GPUs were idle."""
    file, number = tmp_path / "gpus", iter(range(1, 99))
    file.write_bytes(gpu_line(0.0, [GpuUse(0, 0.0, 1, 2)]))
    idle = IdleGpus(str(file))

    def add(*busy):
        clock[0] += 30.0
        if busy:
            uses = [GpuUse(index, each, 1, 2) for index, each in enumerate(busy)]
            file.write_bytes(file.read_bytes() + gpu_line(float(next(number)), uses))
        return idle.seconds()

    return add


def test_only_answers_in_which_all_gpus_are_idle_count(gpus):
    assert [gpus(0.0, 0.0), gpus(0.0, 0.0), gpus(0.0, 0.0)] == [0.0, 30.0, 60.0]
    assert [gpus(0.0, 1.0), gpus(0.0, 0.0), gpus(0.0, 0.0)] == [0.0, 0.0, 30.0]


def test_without_an_answer_no_gpu_gets_more_idle(gpus):
    assert [gpus(0.0), gpus(0.0), gpus(), gpus()] == [0.0, 30.0, 30.0, 30.0]


def test_a_gpu_that_reports_no_percentage_is_not_idle(gpus):
    assert [gpus(None), gpus(None)] == [0.0, 0.0]


def test_the_line_of_an_earlier_start_does_not_count(gpus):
    assert [gpus(), gpus()] == [0.0, 0.0]


def test_after_a_long_time_without_an_answer_nobody_knows_that_they_are_idle(gpus):
    assert [gpus(0.0), gpus(0.0)] == [0.0, 30.0]
    assert [gpus() for _ in range(12)][-1] == 0.0
    assert [gpus(0.0), gpus(0.0)] == [0.0, 30.0]
