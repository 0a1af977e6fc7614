"""The same asked of several at once: in their order, in so many threads, every failure kept."""

from __future__ import annotations

import threading

import pytest

from tfdeploy.agent import at_once


def test_nobody_is_asked_nothing():
    assert at_once.each(pytest.fail, []) == []


def test_the_answers_come_in_the_order_of_the_asked():
    another = threading.Event()

    def ask(one):
        if one == "a":
            assert another.wait(30.0)
        another.set()
        return one * 2

    assert at_once.each(ask, ["a", "b", "c"]) == ["aa", "bb", "cc"]


def test_all_are_asked_at_the_same_time():
    together = threading.Barrier(20, timeout=30.0)
    assert sorted(at_once.each(lambda _: together.wait(), range(20))) == list(range(20))


@pytest.mark.parametrize("threads", [1, 3])
def test_no_more_are_asked_at_a_time_than_is_said(threads):
    free, crowded = threading.Semaphore(threads), []
    together = threading.Barrier(threads, timeout=30.0)

    def ask(one):
        if not free.acquire(blocking=False):
            crowded.append(one)
            return
        together.wait()  # so many are, though
        free.release()
        together.wait()

    at_once.each(ask, range(4 * threads), threads)
    assert crowded == []


def test_one_that_fails_keeps_none_from_being_asked_and_the_first_is_raised():
    asked = []

    def ask(one):
        asked.append(one)
        if one in (2, 4):
            raise ValueError(one)

    with pytest.raises(ValueError, match="2"):
        at_once.each(ask, range(6))
    assert sorted(asked) == list(range(6))
