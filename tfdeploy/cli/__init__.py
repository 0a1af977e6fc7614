"""The command line: turn options into objects, call one command, exit with its code.

Modules that take long to import are imported inside the functions, so that --help answers at once.
"""

from __future__ import annotations

import signal
import sys
import warnings
from typing import TYPE_CHECKING, NoReturn, TextIO

# In the order in which --help lists the commands.
from tfdeploy.cli import beginning, training, trials, resuming, watching  # isort: skip
from tfdeploy.cli import tensorboard, entering, housekeeping  # isort: skip
from tfdeploy import branches
from tfdeploy.cli import command, completion, streams
from tfdeploy.cli.command import INTERRUPTED, app, print_interrupted
from tfdeploy.cli.options import DOUBTED, take_newer_record
from tfdeploy.errors import ClaimedRecord, Note, OutdatedRecord, TfdeployError
from tfdeploy.formatting.humanize import escape_line

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "app", "beginning", "entering", "housekeeping", "main", "resuming",
    "tensorboard", "training", "trials", "watching",
]  # fmt: skip


# How often a command starts again: with a newer record, and without those of hosts that invent one.
MAX_CLAIMS = 3

branches.load_commands()


def main() -> None:
    """Run the command line. An error becomes a message, a hint and an exit code."""
    streams.prepare()
    _handle_as_ctrl_c(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    completion.prepare()
    warnings.showwarning = _print_note
    sys.argv[1:] = command.verbose_after_name(sys.argv[1:])
    try:
        _run(sys.argv[1:])
    except TfdeployError as error:
        _print_failure(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print_interrupted()
        sys.exit(INTERRUPTED)
    except Exception as error:
        _print_defect(error)
        sys.exit(1)


def _print_defect(error: Exception) -> None:
    """Print the traceback of a defect of tfdeploy, and where to report it."""
    from importlib.metadata import version

    from tfdeploy.cli import debug_log

    sys.stderr.write(debug_log.traceback_of(error))
    found = f"unexpected {type(error).__name__}: {error}".rstrip(": ")
    file = f", and with {debug_log.last_path}" if debug_log.last_path else ""
    hint = f"report it as a defect of tfdeploy {version('tfdeploy')} with the lines above{file}"
    _print_failure(TfdeployError(escape_line(debug_log.hide(found)), hint))


def _run(arguments: Sequence[str]) -> None:
    """Run a command; if a host has a newer record of its run, once more with that."""
    try:
        DOUBTED.set(())
        for _ in range(MAX_CLAIMS):
            try:
                return command.run(arguments)
            except OutdatedRecord as outdated:
                _take_newer_record(outdated, reads=arguments[0] in command.READERS)
        return command.run(arguments)
    except SystemExit as ended:
        if not ended.code:
            streams.require_written()
        raise
    finally:
        streams.forget_reader()


def _take_newer_record(outdated: OutdatedRecord, *, reads: bool) -> None:
    """Take the newer record that a run's hosts have. If it is not believed, a command that only
    `reads` goes on without it, and doubts these hosts. Raises ClaimedRecord for others."""
    try:
        take_newer_record(outdated)
    except ClaimedRecord as claim:
        if not (reads and claim.doubtful):
            raise
        warnings.warn(f"not used: {claim}", Note, stacklevel=2)
        DOUBTED.set((*DOUBTED.get(), *claim.doubtful))


def _print_failure(error: TfdeployError) -> None:
    from tfdeploy.documents import Failure
    from tfdeploy.output.console import Console, print_json, print_json_lines

    Console().print_error(error)
    if "--json" in _own_arguments():  # a script finds a document in every case
        if sys.argv[1] in command.LINE_PRINTERS:
            print_json_lines([Failure(error)])
        else:
            print_json(Failure(error))


def _print_note(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning: one of tfdeploy's as notes are, any other as Python does."""
    if not issubclass(category, Note):
        sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))
        return
    from tfdeploy.output.console import Console

    Console().print_notes([TfdeployError(str(message))])


def _own_arguments() -> list[str]:
    """Return the arguments of tfdeploy itself: those after `--` are for another program."""
    arguments = sys.argv[1:]
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, or a signal that means the same.

    It is not KeyboardInterrupt itself: if that interrupts source code that Python compiles and runs
    (`exec` of a string, as @dataclass does while a module is imported), Python ends itself by
    SIGINT at its exit, whatever exit code the command has chosen. Source: run_eval_code_obj in
    CPython's pythonrun.c.
    """


def _handle_as_ctrl_c(*signals: signal.Signals) -> None:
    """Let these signals end a command: a scheduler sends SIGTERM, a terminal that is closed sends
    SIGHUP. A signal that is ignored, such as SIGHUP under nohup, stays ignored."""
    for number in signals:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _interrupt)


def _interrupt(*_: object) -> NoReturn:
    raise Interrupted
