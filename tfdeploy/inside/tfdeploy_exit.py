"""Let the chief of a ParameterServerStrategy end: TensorFlow's coordinator can block it forever.

Measured with TensorFlow 2.21: python/distribute/coordinator/cluster_coordinator.py. In both cases
the chief waits forever, while its port still answers:

- The ClusterCoordinator is collected when the interpreter exits. Its __del__ then waits for a lock
  that a daemon thread may hold, and the exit has stopped that thread. It happens if a worker is
  away when the chief exits, whether the chief succeeded or failed.
- The coordinator has a thread for each worker. If a worker is lost, its thread puts its step back
  into the queue and waits for the worker. If a ps is lost at that moment, the thread marks the step
  as failed, but the step is not there any more: an AssertionError ends the thread, no other thread
  takes the step, and schedule() or join() waits (Worker._process_closure and
  _CoordinatedClosureQueue).
"""

import atexit
import faulthandler
import functools
import sys
from typing import Any, Callable

# For any other cause that blocks the exit. By then all of the script's own exit handlers have run,
# except those that it registered before it imported TensorFlow.
EXIT_TIMEOUT_S = 120.0
COORDINATOR = "tensorflow.python.distribute.coordinator.cluster_coordinator"


def end_at_exit(_: str) -> None:
    """Register an exit handler before the script's own handlers, so that it runs after them."""
    atexit.register(_disarm_coordinator)


def _disarm_coordinator() -> None:
    module = sys.modules.get(COORDINATOR)
    if module is not None:
        # The process exits, so its threads need not be stopped.
        vars(module)["ClusterCoordinator"].__del__ = lambda self: None
    # A C thread that works while the interpreter exits: it prints the stacks and exits with 1.
    faulthandler.dump_traceback_later(EXIT_TIMEOUT_S, exit=True)


def report_failures(_: str) -> None:
    """Let an error that ends a worker's thread end the wait, or raise and patch nothing."""
    from tensorflow.python.distribute.coordinator.cluster_coordinator import (
        _CoordinatedClosureQueue,
    )

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
