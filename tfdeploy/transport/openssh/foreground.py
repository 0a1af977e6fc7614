"""Commands that a user runs on a host: with OpenSSH itself, so that terminals and ports work as
they do with `ssh`. A host without SSH is the controller: its commands are run directly."""

from __future__ import annotations

import shlex
import signal
import socket
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from tfdeploy.errors import CommandFailed, RunError
from tfdeploy.transport.openssh import master
from tfdeploy.transport.openssh.choice import why_openssh
from tfdeploy.transport.openssh.transport import login_command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tfdeploy.config.inventory import Host, Inventory

LOOPBACK = "127.0.0.1"
POLL_S = 0.05
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


def forward(
    host: Host, inventory: Inventory, port: int, local_port: int, on_open: Callable[[], None]
) -> int:
    """Connect a port of the controller, for its own programs only, to a port of a host, until ssh
    ends; call `on_open` when it is open. Return ssh's exit code.

    Raises RunError if the controller's port is taken.
    """
    _require_free(local_port)
    forwarding = f"{LOOPBACK}:{local_port}:localhost:{port}"
    program, *words = login_command(host, inventory)
    ssh = [program, "-o", "ClearAllForwardings=no", *words]  # of two values, ssh takes the first
    options = (*QUIET, "-o", "ExitOnForwardFailure=yes", "-L", forwarding, "--", host.name)
    # With -N, ssh would leave the forwarding to a master, and exit.
    is_shared = bool(why_openssh(host, inventory))
    argv = [*ssh, *options, "exec cat"] if is_shared else [*ssh, "-N", *options]
    process = _start(host.name, argv, subprocess.PIPE, None)
    try:
        while process.poll() is None and bind_error(local_port) is None:
            time.sleep(POLL_S)
        if process.poll() is None:
            on_open()
        return process.wait()
    finally:
        process.terminate()
        if is_shared:
            cancel = [*ssh, "-O", "cancel", "-L", forwarding, "--", host.name]
            with suppress(subprocess.TimeoutExpired):
                null = subprocess.DEVNULL
                subprocess.run(
                    cancel, stdin=null, capture_output=True, timeout=master.ANSWER_TIMEOUT_S
                )


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


def _require_free(port: int) -> None:
    error = bind_error(port)
    if error is not None:
        raise RunError(
            f"port {port} of the controller can't be opened: {error.strerror}",
            "choose a free one: PORT:LOCALPORT",
        )


def bind_error(port: int) -> OSError | None:
    """Return why the controller's port cannot be opened, or None if it can.

    The address may be reused, so ssh may open the port at the same time.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            return error
    return None
