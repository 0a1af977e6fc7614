"""train_async.py that stalls after a step of its first attempt while its server still answers.

Up to the first step it prints a line each second, so that a slow start is no stall.
"""

import builtins
import sys
import threading
from pathlib import Path

if not Path("attempted").exists():
    Path("attempted").touch()
    sys.argv.append("--pace=600")

trains = threading.Event()
own_print = builtins.print


def print_and_note(*values, **options):
    own_print(*values, **options)
    if str(values[0]).startswith("step "):
        trains.set()


def print_until_first_step():
    while not trains.wait(1.0):
        own_print("starting", flush=True)


builtins.print = print_and_note
threading.Thread(target=print_until_first_step, daemon=True).start()

import train_async  # noqa: E402, F401  (it trains when it is imported)
