"""How often a task that is first in the queue looks whether what it needs is free."""

from __future__ import annotations

import secrets

import pytest
from support.builders import make_launch

from tfdeploy.agent.machine import leases
from tfdeploy.agent.queue import resources
from tfdeploy.agent.refusal import Refusal
from tfdeploy.agent.supervision import turn
from tfdeploy.agent.supervision.heartbeat.messages import WAIT
from tfdeploy.shared import records


class Alone:
    """The membership of a task whose run waits."""

    def turn(self, holds):
        return WAIT

    def priority(self, of_launch):
        return of_launch

    def withdraws(self):
        return True


@pytest.fixture
def waiting(tmp_path, monkeypatch):
    """The turn of a task that is first, its GPU, and the times at which it has asked nvidia-smi, by
    a clock that goes on by a second at each call."""
    gpu, looks, now = f"gpu/GPU-{secrets.token_hex(4)}", [], [0.0]
    launch = make_launch(submitted=1, gpus=[0], waits_for=[gpu], port=None)
    records.write(tmp_path / "launch.json", records.to_json(launch))
    monkeypatch.setattr(turn.time, "monotonic", lambda: now[0])

    def look(need, gpus):
        looks.append(now[0])
        return [Refusal("GPU 0 is taken by a stranger", busy=True)]

    monkeypatch.setattr(resources.gpus, "refusals", look)
    monkeypatch.setattr(resources.gpus, "acquire", lambda need, gpus: pytest.fail("it waits"))
    found = turn.Turn(launch, str(tmp_path), Alone())

    def wait(seconds):
        for _ in range(seconds):
            found.left_s()
            now[0] += 1
        return looks

    yield wait, gpu
    found.leave_queue()


def test_a_gpu_that_a_stranger_uses_is_looked_at_ever_more_rarely(waiting):
    wait, _ = waiting
    assert wait(100) == [0, 1, 3, 7, 15, 31, 61, 91]


def test_a_gpu_that_a_run_leaves_is_looked_at_soon(waiting):
    wait, gpu = waiting
    before = len(wait(70))
    held = leases.acquire([gpu])
    wait(30)
    leases.release(held)
    assert wait(4)[before:] == [100, 101, 103]
