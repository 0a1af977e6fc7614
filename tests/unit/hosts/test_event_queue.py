"""Events that wait are limited by their size, and nobody waits for a queue that is closed."""

from __future__ import annotations

import queue
import threading

import pytest
from support.builders import eventually

from tfdeploy.hosts.events import EVENT_BYTES, MAX_WAITING_BYTES, EventQueue


def put_all(events, sizes):
    """Put events in a thread; return the thread, and the number of those that were put."""
    done = []

    def run():
        for number, size in enumerate(sizes):
            events.put(number, size)
            done.append(number)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, done


@pytest.mark.parametrize(
    ("size", "most"),
    [(0, MAX_WAITING_BYTES // EVENT_BYTES), (MAX_WAITING_BYTES // 4, 4), (1 << 40, 1)],
)
def test_a_host_waits_while_too_many_bytes_wait(size, most):
    events = EventQueue()
    thread, done = put_all(events, [size] * 1000)
    assert eventually(lambda: len(done) == most)
    thread.join(0.05)
    assert len(done) == most
    assert [events.get(60) for _ in range(1000)] == [*range(1000)]
    thread.join()
    assert events.waiting_bytes == 0


def test_nobody_waits_for_a_closed_queue():
    events = EventQueue()
    thread, done = put_all(events, [MAX_WAITING_BYTES] * 2)
    assert eventually(lambda: done)
    events.close()
    thread.join()
    with pytest.raises(queue.Empty):
        events.get(None)
