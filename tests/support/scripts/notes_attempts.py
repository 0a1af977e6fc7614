"""The stub, with a file that gets the times at which each attempt starts and ends."""

import atexit
import time


def note():
    with open("attempts", "a") as file:
        print(time.time(), file=file)


note()
atexit.register(note)

import stub  # noqa: E402, F401  (it runs when it is imported)
