"""Find out why an agent does not answer: sshd starts each command through the user's login shell,
which may refuse everybody, or read a start file that ends it, prints, or reads the input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.errors import CommandFailed, HostError
from tfdeploy.transport.words import endless, last_words

if TYPE_CHECKING:
    from tfdeploy.transport import Transport

CHECK_AFTER_S = 5.0  # without a first answer; most take milliseconds
CHECK_S = 4.0
RUNS = b"tfdeploy: this command runs\n"
INPUT = b"# tfdeploy: this is its input\n"  # a comment, for a shell that takes it for a command
COMMAND = ("sh", "-c", f"echo '{RUNS.decode().strip()}'; exec cat")


def find_problem(transport: Transport, host: str) -> CommandFailed | None:
    """Return what prevents commands on a host; None if nothing does, or if it can't be found out in
    time: the host may only be slow."""
    try:
        command = transport.run(COMMAND, stdin=INPUT, timeout_s=CHECK_S)
    except CommandFailed as failed:
        return _runs_nothing(host, failed.message)
    except HostError:
        return None
    before, runs, after = command.stdout.partition(RUNS)
    if not runs:
        printed = last_words(before.replace(INPUT, b""), command.stderr)
        return _runs_nothing(host, f"it exits with {command.exit}: {printed}")
    if INPUT not in after:
        message = "a start file of its login shell reads the input of tfdeploy's commands"
        return CommandFailed(host, message, _hint(host, "that file"))
    return None


def prints_without_end(host: str, output: bytes) -> CommandFailed:
    """Return the error for output that is no answer, and does not end."""
    return _runs_nothing(host, endless(output))


def _runs_nothing(host: str, found: str) -> CommandFailed:
    what = "the user's login shell or its start file"
    return CommandFailed(host, f"its login shell runs no command: {found}", _hint(host, what))


def _hint(host: str, what: str) -> str:
    return f"try: ssh {host} true; then correct {what}, such as ~/.bashrc"
