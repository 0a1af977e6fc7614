"""A burst of events is reported in few calls, and no event is lost or reported twice."""

from __future__ import annotations

import threading
import time
from itertools import chain

from support.builders import eventually

from tfdeploy.output.batching import Batch, BatchTimes


def test_the_first_events_are_reported_one_by_one_and_the_rest_together():
    reports = []
    batch = Batch(reports.append, 3, BatchTimes(3600.0, 3600.0))
    for number in range(100):
        batch.add(number)
    assert reports == [[0], [1], [2]]
    batch.flush()
    batch.flush()
    assert reports == [[0], [1], [2], list(range(3, 100))]


def test_waiting_events_are_reported_after_a_moment_without_a_flush():
    reports = []
    batch = Batch(reports.append, 0, BatchTimes(group_s=0.05))
    batch.add("a")
    batch.add("b")
    assert eventually(lambda: [*chain(*reports)] == ["a", "b"])


def test_after_a_quiet_time_the_next_event_is_reported_at_once():
    reports = []
    batch = Batch(reports.append, 1, BatchTimes(group_s=60.0, quiet_s=0.05))
    batch.add("a")
    batch.add("b")
    time.sleep(0.1)
    batch.add("c")
    assert reports == [["a"], ["b"], ["c"]]


def test_many_threads_lose_and_repeat_no_event():
    reports = []
    batch = Batch(reports.append, 2, BatchTimes(group_s=0.001))

    def add(first):
        for number in range(first, first + 200):
            batch.add(number)

    threads = [threading.Thread(target=add, args=(first,)) for first in range(0, 1600, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    batch.flush()
    assert sorted(chain(*reports)) == list(range(1600))
