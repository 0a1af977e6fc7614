"""What ends a worker's thread in TensorFlow's coordinator ends the chief's wait for it as well.

ParameterServerStrategy's ClusterCoordinator gives each worker a thread. When a worker is lost the
thread puts its step back and waits for the worker; is a ps lost in that moment, it marks the step
as failed, which is no longer there to be marked: an AssertionError ends the thread, no other takes
the step, and schedule() or join() waits for ever, with the port answering all the time.
(Measured with TensorFlow 2.21: python/distribute/coordinator/cluster_coordinator.py,
Worker._process_closure and _CoordinatedClosureQueue.)
"""

import functools
from typing import Any, Callable

from tensorflow.python.distribute.coordinator.cluster_coordinator import _CoordinatedClosureQueue


def tell_failures(_: str) -> None:
    """Patch the queue of steps, or raise and patch nothing."""
    _CoordinatedClosureQueue.mark_failed = _told(_CoordinatedClosureQueue.mark_failed)


def _told(mark_failed: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(mark_failed)
    def told(steps: Any, error: Exception) -> None:
        try:
            mark_failed(steps, error)
        except AssertionError:
            with steps._queue_lock:
                steps._error = steps._error or error
                steps._stop_waiting_condition.notify_all()

    return told
