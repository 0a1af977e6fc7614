"""train_async.py whose last worker never ends: deaf to SIGTERM, with children of its own."""

import signal
import subprocess
import sys
import time

if "--task_index=1" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for own_session in (False, True):
        subprocess.Popen(["sleep", "3000"], start_new_session=own_session)

import train_async  # noqa: F401  (it trains when it is imported)

if "--task_index=1" in sys.argv:
    time.sleep(3000)
