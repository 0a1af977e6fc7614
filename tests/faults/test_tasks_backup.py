"""Fault 72: a synchronous run survives with Keras' BackupAndRestore, though disks are separate."""

from __future__ import annotations

import re
import signal

import pytest

pytestmark = pytest.mark.slow
BEGINNING = re.compile(r"^begins with epoch (\d+)$", re.M)


def beginnings(run, count: int) -> list[set[int]]:
    """Wait until each worker has started training `count` times, and trained on. Return with which
    epochs; one set for each time."""

    def found() -> list[list[int]]:
        return [[int(e) for e in BEGINNING.findall(run.log(task))] for task in run.tasks]

    def train() -> bool:
        after = [run.log(task).rpartition("begins with")[2] for task in run.tasks]
        return all(log.count("\nepoch ") >= 3 for log in after)

    run.until(lambda: min(map(len, found())) >= count and train(), f"beginning {count}")
    return [set(epochs) for epochs in zip(*found(), strict=True)]


def test_every_worker_continues_from_the_chiefs_keras_backup(training):
    settings = {"role": "tf_config"}
    run = training("train_backup.py", tasks={"workers": 2}, training=settings).start()
    assert beginnings(run, 1) == [{0}]
    run.send_signal(signal.SIGKILL, "worker:0")
    last = beginnings(run, 2)[-1]
    assert len(last) == 1 and last != {0}, run.states()
    run.ok("stop")
    run.ok("resume")
    resumed = beginnings(run, 3)
    assert all(len(epochs) == 1 for epochs in resumed), "both continue from the same epoch"
    first = [next(iter(epochs)) for epochs in resumed]
    assert first == sorted(set(first)), "each time from a later one"
    assert set(run.states().values()) == {"READY"}
