"""A function is called for several items in parallel; results have the order of the items."""

from __future__ import annotations

import threading

import pytest

from tfdeploy.shared import parallel


def test_no_items_yield_no_results():
    assert parallel.each(pytest.fail, []) == []


def test_results_have_the_order_of_the_items():
    second_call = threading.Event()

    def call(item):
        if item == "a":
            assert second_call.wait(30.0)
        second_call.set()
        return item * 2

    assert parallel.each(call, ["a", "b", "c"]) == ["aa", "bb", "cc"]


def test_without_a_limit_all_calls_run_at_the_same_time():
    together = threading.Barrier(20, timeout=30.0)
    assert sorted(parallel.each(lambda _: together.wait(), range(20))) == list(range(20))


@pytest.mark.parametrize("threads", [1, 3])
def test_no_more_calls_run_at_a_time_than_threads(threads):
    slots, excess = threading.Semaphore(threads), []
    together = threading.Barrier(threads, timeout=30.0)

    def call(item):
        if not slots.acquire(blocking=False):
            excess.append(item)
            return
        together.wait()  # until as many calls run as there are threads
        slots.release()
        together.wait()

    parallel.each(call, range(4 * threads), threads)
    assert excess == []


def test_all_items_are_processed_before_the_first_failure_is_raised():
    called = []

    def call(item):
        called.append(item)
        if item in (2, 4):
            raise ValueError(item)

    with pytest.raises(ValueError, match="2"):
        parallel.each(call, range(6))
    assert sorted(called) == list(range(6))


def test_all_items_are_processed_in_the_threads_that_can_be_started(monkeypatch):
    started, start = [], threading.Thread.start

    def few(thread):
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", few)
    assert parallel.each(str, range(50), 8) == [str(number) for number in range(50)]
    assert not any(thread.is_alive() for thread in started)
