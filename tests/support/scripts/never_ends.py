"""train_stub.py with a last worker that never ends: it ignores SIGTERM and has children."""

import signal
import subprocess
import sys
import time

if "--task_index=1" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for own_session in (False, True):
        subprocess.Popen(["sleep", "3000"], start_new_session=own_session)

import train_stub  # noqa: F401  (it trains when it is imported)

if "--task_index=1" in sys.argv:
    time.sleep(3000)
