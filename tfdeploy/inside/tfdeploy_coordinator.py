"""End the chief's wait if an error ends a worker's thread in TensorFlow's coordinator.

ParameterServerStrategy's ClusterCoordinator has a thread for each worker. If a worker is lost, its
thread puts its step back into the queue and waits for the worker. If a ps is lost at that moment,
the thread marks the step as failed, but the step is not there any more: an AssertionError ends the
thread, no other thread takes the step, and schedule() or join() waits forever, while the port still
answers. (Measured with TensorFlow 2.21: python/distribute/coordinator/cluster_coordinator.py,
Worker._process_closure and _CoordinatedClosureQueue.)
"""

import functools
from typing import Any, Callable

from tensorflow.python.distribute.coordinator.cluster_coordinator import _CoordinatedClosureQueue


def report_failures(_: str) -> None:
    """Patch the queue of steps, or raise and patch nothing."""
    _CoordinatedClosureQueue.mark_failed = _reporting(_CoordinatedClosureQueue.mark_failed)


def _reporting(mark_failed: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(mark_failed)
    def mark_failed_and_report(queue: Any, error: Exception) -> None:
        try:
            mark_failed(queue, error)
        except AssertionError:
            with queue._queue_lock:
                queue._error = queue._error or error
                queue._stop_waiting_condition.notify_all()

    return mark_failed_and_report
