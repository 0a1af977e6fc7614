"""Find out why an agent does not answer: sshd starts each command through the user's login shell,
which may refuse everybody, or read a start file that ends it, prints, waits, or reads the input.

bash reads ~/.bashrc for a command of ssh, zsh ~/.zshenv, tcsh ~/.tcshrc or ~/.cshrc, and fish
~/.config/fish/config.fish; dash and ksh read none. Only the shell itself knows which one it is: if
it runs nothing, all four are named.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.errors import CommandFailed, CommandTimedOut, HostError
from tfdeploy.transport.words import endless, last_words

if TYPE_CHECKING:
    from tfdeploy.transport import Transport

CHECK_AFTER_S = 5.0  # without a first answer; most take milliseconds
CHECK_S = 3.0
OUTPUT_S = 0.5
START_S = 60.0  # in all: modules of a cluster, or a home directory on a slow disk, may need it
NOISE_BYTES = 1 << 20  # of output before the first answer
RUNS = b"tfdeploy: this command runs"
OTHER = b"tfdeploy: another shell runs this"
# A comment, for a shell that takes it for a command, and a command, for one that runs its input.
INPUT = b"# tfdeploy: this is its input\necho '" + OTHER + b"' $SHELL\n"
COMMAND = ("sh", "-c", f"echo '{RUNS.decode()}' $SHELL; exec cat")
BASH = "put `case $- in *i*) ;; *) return;; esac` at the top of ~/.bashrc"
ZSH = "move that line from ~/.zshenv to ~/.zshrc"
TCSH = "put `if (! $?prompt) exit` at the top of ~/.tcshrc, or of ~/.cshrc"
FISH = "put that line between `if status is-interactive` and `end` in ~/.config/fish/config.fish"
GUARDS = {"bash": BASH, "zsh": ZSH, "tcsh": TCSH, "csh": TCSH, "fish": FISH}
SLOW = (
    "its sshd answers, but its login shell has not started tfdeploy's command yet: a start file "
    "such as ~/.bashrc waits, or the host is slow"
)


@dataclass(frozen=True)
class LoginShell:
    """What was found: the `problem` that prevents commands (None: none was found in time), whether
    the shell `runs` them, and what it has `printed` so far if it does not."""

    problem: CommandFailed | None
    runs: bool
    printed: bytes = b""


def probe(transport: Transport, host: str) -> LoginShell:
    """Run a command on a host, and say what its login shell makes of it."""
    try:
        command = transport.run(COMMAND, stdin=INPUT, timeout_s=CHECK_S)
    except CommandFailed as failed:
        return LoginShell(_runs_nothing(host, failed.message), runs=False)
    except CommandTimedOut:
        printed = _first_output(transport)
        return LoginShell(None, runs=RUNS in printed, printed=printed)
    except HostError:
        return LoginShell(None, runs=True)  # the connection was lost: no fault of the shell
    before, runs, after = command.stdout.partition(RUNS)
    shell, _, after = after.partition(b"\n")
    if not runs:
        return LoginShell(_not_run(host, before, command.exit, command.stderr), runs=False)
    if INPUT not in after:
        message = "a start file of its login shell reads the input of tfdeploy's commands"
        return LoginShell(CommandFailed(host, message, _hint(host, shell)), runs=True)
    return LoginShell(None, runs=True)


def find_problem(transport: Transport, host: str) -> CommandFailed | None:
    """Return what prevents commands on a host; None if nothing does, or if it can't be found out in
    time: the host may only be slow."""
    return probe(transport, host).problem


def prints_without_end(host: str, output: bytes) -> CommandFailed:
    """Return the error for output that is no answer, and does not end."""
    return _runs_nothing(host, endless(output))


def never_starts(host: str, waited_s: float, printed: bytes) -> CommandFailed:
    """Return the error for a shell that has started no command for so long."""
    message = f"its login shell has not started tfdeploy's command within {waited_s:.0f} s, though "
    does = f"goes on printing: {last_words(printed)}" if printed else "waits"
    return CommandFailed(host, f"{message}its sshd answers: a start file {does}", _hint(host, b""))


def _first_output(transport: Transport) -> bytes:
    """Return what a command has printed that does not end; b"" if that is nothing."""
    stream = transport.stream(COMMAND)
    try:
        return stream.read(OUTPUT_S)
    except HostError:
        return b""
    finally:
        stream.close()


def _not_run(host: str, output: bytes, code: int, errors: bytes) -> CommandFailed:
    """Return the error for a shell that has ended without the command."""
    printed, other, shell = output.replace(INPUT, b"").partition(OTHER)
    if other:
        message = "a start file of its login shell replaces it by another shell"
        return CommandFailed(host, message, _hint(host, shell.split(b"\n")[0]))
    found = last_words(printed, errors)
    return _runs_nothing(host, f"it exits with {code}: {found}")


def _runs_nothing(host: str, found: str) -> CommandFailed:
    return CommandFailed(host, f"its login shell runs no command: {found}", _hint(host, b""))


def _hint(host: str, shell: bytes) -> str:
    """Return what to change, with the path of the login shell (b"": unknown)."""
    name = posixpath.basename(shell.decode(errors="replace").strip())
    guard = GUARDS.get(name) or f"bash: {BASH}; zsh: {ZSH}; tcsh: {TCSH}; fish: {FISH}"
    return f"try: ssh {host} true; then correct its start file: {guard}"
