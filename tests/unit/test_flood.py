"""What happens to very many at the same time is told in few lines, and nothing is left out."""

from __future__ import annotations

import threading
from itertools import chain

from tfdeploy import flood
from tfdeploy.flood import Flood
from unit.made import eventually


def test_the_first_are_told_one_by_one_and_the_rest_together(monkeypatch):
    monkeypatch.setattr(flood, "TOGETHER_S", 60.0)
    told = []
    many = Flood(told.append, 3)
    for number in range(100):
        many.add(number)
    assert told == [[0], [1], [2]]
    many.flush()
    many.flush()
    assert told == [[0], [1], [2], list(range(3, 100))]


def test_what_is_kept_is_told_in_a_moment_without_being_asked(monkeypatch):
    monkeypatch.setattr(flood, "TOGETHER_S", 0.05)
    told = []
    many = Flood(told.append, 0)
    many.add("a")
    many.add("b")
    assert eventually(lambda: [*chain(*told)] == ["a", "b"])


def test_after_a_quiet_while_the_next_is_told_at_once(monkeypatch):
    monkeypatch.setattr(flood, "TOGETHER_S", 60.0)
    monkeypatch.setattr(flood, "QUIET_S", 60.0)
    told = []
    many = Flood(told.append, 1)
    many.add("a")
    many.add("b")
    monkeypatch.setattr(flood, "QUIET_S", -1.0)
    many.add("c")
    assert told == [["a"], ["b"], ["c"]]


def test_nothing_is_lost_or_told_twice_by_many_threads(monkeypatch):
    monkeypatch.setattr(flood, "TOGETHER_S", 0.001)
    told = []
    many = Flood(told.append, 2)

    def add(first):
        for number in range(first, first + 200):
            many.add(number)

    threads = [threading.Thread(target=add, args=(first,)) for first in range(0, 1600, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    many.flush()
    assert sorted(chain(*told)) == list(range(1600))
