"""The command line of tfdeploy, as forks of one process that has imported its modules.

A start of Python and these imports take most of a command's CPU time. Everything else is real: the
process, its streams and signals, the connection daemon, agents, supervisors.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from support import invariants
from support.forks import ForkServer
from support.trusting import trust_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from support.forks import Fork

# A new interpreter: for tests of what is imported, when, and of how Python starts and ends.
REAL = (sys.executable, "-m", "tfdeploy")
# These import what most commands import.
IMPORTS = """
import pydantic.type_adapter, tfdeploy.cli, tfdeploy.hosts.transports
from tfdeploy.commands import check, collect, logs, plan, push, start, status, stop
from tfdeploy.output import console, progress
from tfdeploy.transport import local
from tfdeploy.transport.daemon import client
from tfdeploy.transport.ssh import config, known_hosts
from tfdeploy.trust import sensitive_values, store
"""
# What Python reads when it starts.
STARTUP = ("PYTHON", "LC_", "LANG", "LD_")


def run(
    *words: str, cwd: Path, env: Mapping[str, str], text_in: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `tfdeploy WORDS` to its end, and until nothing has its output open anymore. What it
    prints must be as invariants.py says."""
    reading, writing = os.pipe()
    with tempfile.TemporaryFile("w+") as errors, _input(text_in) as given:
        command = start(*words, cwd=cwd, env=env, streams=(given, writing, errors.fileno()))
        os.close(writing)
        with os.fdopen(reading) as output:
            printed = output.read()
        code = command.wait()
        errors.seek(0)
        done = subprocess.CompletedProcess([*words], code, printed, errors.read())
        assert not invariants.problems(done.stdout + done.stderr), (words, done)
        return done


def error_of(done: subprocess.CompletedProcess[str]) -> str:
    """Return the error that ended a command, without what it shows of hosts when it takes long."""
    return done.stderr.partition("error: ")[2]


def start(
    *words: str, cwd: Path, env: Mapping[str, str], streams: tuple[int, int, int],
    own_session: bool = False,
) -> Fork:  # fmt: skip
    """Start `tfdeploy WORDS`, and return while it runs. Its user has written each hosts.toml of the
    folder."""
    trust_hosts(cwd)
    startup = frozenset(pair for pair in env.items() if pair[0].startswith(STARTUP))
    argv = ["-m", "tfdeploy", *words]
    return _server(startup).start(argv, cwd, env, streams, own_session=own_session)


def start_with_output_in(file: Path, *words: str, cwd: Path, env: Mapping[str, str]) -> Fork:
    """Start `tfdeploy WORDS` without input, in a session of its own; it prints into `file`."""
    with open(os.devnull) as nothing, file.open("ab") as output:
        streams = (nothing.fileno(), output.fileno(), output.fileno())
        return start(*words, cwd=cwd, env=env, streams=streams, own_session=True)


@contextmanager
def _input(text: str) -> Iterator[int]:
    """Yield a descriptor from which `text` can be read, which a pipe must be able to hold."""
    if not text:
        with open(os.devnull) as nothing:
            yield nothing.fileno()
        return
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as given:
        with os.fdopen(writing, "w") as pipe:
            pipe.write(text)
        yield given.fileno()


@cache
def _server(startup: frozenset[tuple[str, str]]) -> ForkServer:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(STARTUP)}
    return ForkServer(sys.executable, IMPORTS, inherited | dict(startup))
