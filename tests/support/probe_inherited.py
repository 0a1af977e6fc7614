"""Run by test_starter.py: what a process that a test starts inherits."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest


def test_a_program_gets_what_every_starter_gives_it():
    code = (
        "import os, signal, sys; ignored = lambda s: signal.getsignal(s) is signal.SIG_IGN;"
        " print([int(s) for s in signal.valid_signals() if ignored(s)],"
        " signal.pthread_sigmask(signal.SIG_BLOCK, []), oct(os.umask(0)), repr(sys.stdin.read()))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ignored = [signal.SIGPIPE, signal.SIGXFSZ]  # by each Python
    assert ran.stdout == f"{[int(each) for each in ignored]} set() 0o22 ''\n"
    assert subprocess.run(["true"]).returncode == 0  # SIGCHLD is not ignored
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    assert resource.getrlimit(resource.RLIMIT_STACK)[0] == 8 << 20


def test_an_interrupt_interrupts():
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_the_home_can_be_written_and_nothing_else_is_exported():
    (Path.home() / "file").touch()
    assert [name for name in os.environ if os.environ[name] == "HOSTILE"] == []
    assert os.environ["LANG"] == "C.UTF-8"
