"""A process that has come to its end ends: TensorFlow's coordinator can hang Python's own ending.

ParameterServerStrategy's ClusterCoordinator is collected as the interpreter ends; its __del__ then
waits for a lock that a daemon thread may hold, which the ending has stopped: for ever, with the
port answering all the time. It happens when a worker is away as the chief ends, well or not.
(Measured with TensorFlow 2.21; python/distribute/coordinator/cluster_coordinator.py.)
"""

import atexit
import faulthandler
import sys

# Any other way to hang there: by now the handlers that the script registered have run, but for
# those from before its import of TensorFlow.
PATIENCE_S = 120.0
COORDINATOR = "tensorflow.python.distribute.coordinator.cluster_coordinator"


def end_at_exit(_: str) -> None:
    """Registered before the script's own handlers, so it runs after them."""
    atexit.register(_let_go)


def _let_go() -> None:
    module = sys.modules.get(COORDINATOR)
    if module is not None:
        # The process ends: nobody has to be told to stop any more.
        vars(module)["ClusterCoordinator"].__del__ = lambda self: None
    # A C thread, which works while the interpreter ends: it prints the stacks and exits with 1.
    faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
