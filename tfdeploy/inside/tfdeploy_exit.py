"""Let a finished process exit: TensorFlow's coordinator can block Python's exit forever.

ParameterServerStrategy's ClusterCoordinator is collected when the interpreter exits. Its __del__
then waits for a lock that a daemon thread may hold, and the exit has stopped that thread: it waits
forever, while the port still answers. It happens if a worker is away when the chief exits, whether
the chief succeeded or failed. (Measured with TensorFlow 2.21:
python/distribute/coordinator/cluster_coordinator.py.)
"""

import atexit
import faulthandler
import sys

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
