"""Many hosts at once: none waits for another that is slow or gone, and Ctrl-C waits for none."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager

from support.builders import start_python

# Ctrl-C. It interrupts the main thread of another process, as in a terminal.

INTERRUPTED = """
import sys, threading
sys.path[:0] = sys.argv[1].split(":")
from tfdeploy.hosts import parallel
parallel.INTERRUPT_WAIT_S = float(sys.argv[2])
started, over = [], threading.Event()
def act(one):
    started.append(one)
    if len(started) == 4:
        print("started", flush=True)
    over.wait()
    sys.stdout.write("ended\\n")
try:
    parallel.call_each(act, range(100), 4)
except KeyboardInterrupt:
    print("interrupted", len(started), flush=True)
"""


# The calls end when the interrupted main thread waits for them.
ENDING = INTERRUPTED.replace(
    "try:",
    """
wait = parallel._wait
def end_and_wait(*args):
    over.set()
    wait(*args)
parallel._wait = end_and_wait
try:""",
)


@contextmanager
def interrupted(wait_s, code=INTERRUPTED):
    listens = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    path = ":".join(filter(None, sys.path))
    process = start_python(code, path, str(wait_s), preexec_fn=listens)
    try:
        assert process.first_line == "started"
        process.send_signal(signal.SIGINT)
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_ctrl_c_starts_no_call_and_abandons_those_that_do_not_end():
    """Not even the interpreter waits for them when it exits."""
    with interrupted(0.1) as process:
        assert process.stdout.read() == "interrupted 4\n"
        assert process.wait(60) == 0


def test_ctrl_c_lets_running_calls_end():
    with interrupted(60.0, ENDING) as process:
        assert process.stdout.read() == "ended\n" * 4 + "interrupted 4\n"
