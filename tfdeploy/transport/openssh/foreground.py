"""Commands that a user runs on a host: with OpenSSH itself, so that terminals work as they do
with `ssh`. A host without SSH is the controller: its commands are run directly."""

from __future__ import annotations

import logging
import shlex
import signal
import subprocess
from typing import TYPE_CHECKING

from tfdeploy.errors import CommandFailed
from tfdeploy.transport.openssh.transport import login_command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tfdeploy.config.inventory import Host, Inventory

_log = logging.getLogger(__name__)
# Without "Connection to gpu-01 closed."; errors are printed.
QUIET = ("-o", "LogLevel=ERROR")


def command_line(
    host: Host, inventory: Inventory, argv: Sequence[str], *, terminal: bool
) -> list[str]:
    """Return the controller's command line that runs `argv` on a host, in its login shell.

    With `terminal`, the host gives the command a terminal of its own, and Ctrl-C reaches it.
    """
    if not host.uses_ssh:
        return list(argv)
    ssh = [*login_command(host, inventory), *QUIET, *(["-t"] if terminal else [])]
    _log.debug("%s: %s", host.name, shlex.join(ssh))
    # exec: sshd is the command's parent, whose end the command notices.
    return [*ssh, "--", host.name, f"exec {shlex.join(argv)}"]


def run(host: str, argv: Sequence[str]) -> int:
    """Run a command on the controller with its own standard streams; return a shell's exit code.

    Ctrl-C is for the command: it decides whether it ends. Any other exception ends it.
    """
    previous = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        return _exit_code(_start(host, argv, None, None))
    finally:
        signal.signal(signal.SIGINT, previous)


def run_by_lines(host: str, argv: Sequence[str], on_lines: Callable[[list[str]], None]) -> int:
    """Run a command on the controller without input; call `on_lines` with what it prints."""
    process = _start(host, argv, subprocess.DEVNULL, subprocess.PIPE)
    with process:
        for line in process.stdout or ():
            on_lines([line.decode(errors="replace").rstrip("\r\n")])
    return _exit_code(process)


def _start(
    host: str, argv: Sequence[str], stdin: int | None, output: int | None
) -> subprocess.Popen[bytes]:
    errors = subprocess.STDOUT if output else None
    try:
        return subprocess.Popen(argv, stdin=stdin, stdout=output, stderr=errors)
    except OSError as error:
        raise CommandFailed(host, f"{argv[0]} can't be run: {error.strerror}") from None


def _exit_code(process: subprocess.Popen[bytes]) -> int:
    try:
        code = process.wait()
    finally:
        process.terminate()  # nothing, if it has ended
    return code if code >= 0 else 128 - code
