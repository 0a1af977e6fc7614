"""Recipes about large tables, recovery, input and roles: each shows what its page says."""

from __future__ import annotations

import re

import pytest
from support.recipes import run

from examples.forks import train

pytestmark = pytest.mark.slow
ERROR = re.compile(r"^test error (\S+) stars\ntest error of a guess .* the mean (\S+)$", re.M)
SHARDS = {
    "users/part_0 (50000, 8)": "ps/0",
    "users/part_1 (50000, 8)": "ps/1",
    "films/part_0 (500, 8)": "ps/0",
    "films/part_1 (500, 8)": "ps/1",
}


def shards(log):
    """Return the ps of each shard that a log names."""
    found = re.findall(r"^(?:tables/)?(\S+?)(?::0)? (\(.*\)) is on /job:(\S+)$", log, re.M)
    ps = [re.sub(r"^ps(?:/replica:0)?/task:(\d).*", r"ps/\1", device) for *_, device in found]
    return {f"{name} {shape}": place for (name, shape, _), place in zip(found, ps, strict=True)}


def assert_recommends(log):
    """Check that the films' stars are known far better than by their mean."""
    error, of_the_mean = map(float, ERROR.search(log).groups())
    assert error < 0.7 * of_the_mean


def test_embeddings_are_on_two_ps_and_only_rows_of_the_batch_travel(tmp_path):
    done = train("embeddings", tmp_path)
    log = done.log("worker:0")
    assert shards(log) == SHARDS
    assert_recommends(log)
    down, up, whole = (
        int(number.replace(",", ""))
        for number in re.search(
            r"a step: (\S+) bytes .*, (\S+) to them; .* (\S+)$", log, re.M
        ).groups()
    )
    rows = 2 * 512 * 8 * 4  # of users and films
    assert whole == (100_000 + 1000) * 8 * 4
    assert rows <= down <= rows + 100
    assert rows + 2 * 512 * 8 <= up <= rows + 2 * 512 * 8 + 100


def test_sharded_variables_recommend_as_well(tmp_path):
    done = train("embeddings_strategy", tmp_path)
    log = done.log("chief:0")
    assert shards(log) == SHARDS
    assert_recommends(log)
    assert list(done.checkpoints.glob("ckpt-1000.index"))


def test_sessions_recover_when_the_ps_is_killed(tmp_path, serial):
    # Late enough for the chief to have saved, also if it stands still while another worker trains.
    done = run("recovery", tmp_path, words=("--kill_at=500", "--steps=850"))
    assert "killed at step 500\n" in done.log("ps:0")
    for worker in ("worker:0", *done.ended_workers()):
        sessions = re.findall(r"^session (\d+) starts at step (\d+)", done.log(worker), re.M)
        numbers = [int(number) for number, _ in sessions]
        assert numbers == [*range(1, len(sessions) + 1)]
        assert len(sessions) >= 2
        assert int(sessions[1][1]) >= 100  # restored, not started again
    assert done.accuracy() >= serial.accuracy() - 0.04


def test_input_is_sharded_and_read_in_parallel(tmp_path, serial):
    done = train("input", tmp_path)
    log = done.log("worker:0")
    times = [float(time) for time in re.findall(r": (\d+) ms for a step$", log, re.M)]
    assert len(times) == 3
    assert times[0] > 1.5 * times[1]
    assert times[0] > 1.5 * times[2]
    for worker in ("worker:0", "worker:1"):
        assert "reads 719 of 1438 images\n" in done.log(worker)
    assert done.accuracy() >= serial.accuracy() - 0.05


def test_the_data_service_gives_each_image_once(tmp_path):
    done = run("data_service", tmp_path)
    log = done.log("chief:0")
    assert re.findall(r"^epoch (\d+): (\d+) images", log, re.M) == [
        (str(epoch), "1438") for epoch in range(1, 9)
    ]
    assert float(re.search(r"^test accuracy (\S+)$", log, re.M)[1]) >= 0.9
    tasks = dict(done.tasks)
    assert tasks.pop("chief:0") == "SUCCEEDED"
    assert tasks == dict.fromkeys(("ps:0", "worker:0", "worker:1"), "STOPPED")


@pytest.mark.parametrize("recipe", ["positional", "environment"])
def test_a_script_learns_its_role(recipe, tmp_path):
    done = train(recipe, tmp_path)
    for task in ("ps:0", "worker:0", "worker:1"):
        job, index = task.split(":")
        assert done.log(task).startswith(f"this is {job} {index} of ['ps', 'worker']\n")
    for worker in done.ended_workers():
        assert "added 100, the total is 200\n" in done.log(worker)
    assert done.tasks["worker:0"] == "SUCCEEDED"
