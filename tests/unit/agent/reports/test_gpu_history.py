"""The history of GPUs: a line for each answer, and a file that keeps its size."""

from __future__ import annotations

import itertools
import json
import os

import pytest

from tfdeploy.agent.reports import history
from tfdeploy.shared.protocol.reports import GpuUse

MEBIBYTE = 1 << 20
MAX_BYTES = 2000


class Answers:
    """Stands in for GpuSampler: a new answer at each second call, `count` in all."""

    def __init__(self, count, pipe):
        self.count, self.every_s, self.calls = count, 30.0, 0
        self._pipe, self._answer = pipe, []

    def read(self):
        self.calls += 1
        if self.calls % 2:
            self._answer = [GpuUse(0, 97.0, 512 * MEBIBYTE, 1024 * MEBIBYTE)]
        if self.calls == 2 * self.count:
            os.close(self._pipe)
        return self._answer

    def close(self):
        self.closed = True


class Health:
    """Stands in for gpu_health.sampler."""

    def read(self):
        return ["GPU 0 (H100): its clocks are throttled (hw slowdown)"]

    def close(self):
        pass


@pytest.fixture
def recorded(tmp_path):
    """Record a number of answers to a small file; return its path and the sampler."""

    def record(count, file=tmp_path / "worker-0.gpus.jsonl"):
        ended, pipe = os.pipe()
        sampler = Answers(count, pipe)
        history.record_answers(
            str(file), str(file.with_name("problems")), sampler, Health(), ended, 2,
            tick_s=0.0, max_bytes=MAX_BYTES, clock=itertools.count(0.0).__next__,
        )  # fmt: skip
        os.close(ended)
        return file, sampler

    return record


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_what_is_wrong_with_a_gpu_is_stored(recorded):
    file, _ = recorded(1)
    assert json.loads(file.with_name("problems").read_text()) == Health().read()


def test_each_answer_is_one_line_in_percent_and_mib(recorded):
    file, sampler = recorded(3)
    assert lines(file) == [{"at": at, "gpus": [[0, 97.0, 512, 1024]]} for at in (0.0, 1.0, 2.0)]
    assert file.stat().st_mode & 0o777 == 0o600
    assert (sampler.closed, sampler.every_s) == (True, 30.0)


def test_a_full_file_covers_the_whole_time_and_gains_lines_more_rarely(recorded):
    file, sampler = recorded(200)
    assert file.stat().st_size <= MAX_BYTES
    times = [line["at"] for line in lines(file)]
    assert times == sorted(times)
    assert times[0] == 0 and times[-1] == 199
    assert sampler.every_s >= 8 * 30.0


def test_a_file_that_cannot_be_written_is_no_error(recorded, tmp_path):
    _, sampler = recorded(3, tmp_path / "absent" / "worker-0.gpus.jsonl")
    assert sampler.closed
