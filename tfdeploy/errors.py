"""All errors that a user can meet: what went wrong, on which host, and what to type next.

    TfdeployError(message, hint)
    ├── InventoryError · PlanError · RunError (ClaimedRecord) · NotTrusted    exit 2: nothing was
    │   changed
    ├── HostError(host)                             exit 1
    │   Unreachable · AuthenticationFailed · HostKeyRefused · CommandFailed
    │   CommandTimedOut · TransferFailed · AgentError (LeaseConflict) · AgentExitedEarly
    │   OutdatedRecord (NewerRun) · RunBeingChanged · RunDeleted
    ├── TaskError(task, host)                       exit 1
    │   TaskFailed · TaskNotReady
    ├── Cancelled                                   the program's own `cancel` was set
    └── FleetError(errors)                          several at once; none hides another

transport/ adds the host's name, commands/ adds the task's, and output/ prints the error.
The same error of several hosts is printed once, with the names and addresses of all of them.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from tfdeploy.formatting.hostlist import MAX_LISTED, fold_names
from tfdeploy.formatting.humanize import escape_line, format_count
from tfdeploy.formatting.terminal_text import plain_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

WORD = re.compile(r"(\bport \d+|(?<![\w.:-])[\w.:-]*\w)")
EXCEPTION = re.compile(r"[\w.]*(?:Error|Exception)\b")  # how the last line of a traceback begins
MAX_LINE = 4000  # characters of a message or a hint
AGE = re.compile(r"\b\d+[smhd]\b")  # what changes in a reason that stays the same
# Words that may differ between hosts with the same error, besides their names: IPv4 and IPv6
# addresses, ports, tasks, ages.
HOST_SPECIFIC = re.compile(
    r"\d+(?:\.\d+){3}(?::\d+)?|[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}|port \d+"
    rf"|(?:ps|chief|worker|evaluator):\d+|{AGE.pattern}"
)


class TfdeployError(Exception):
    """The base class. `message` says what was found and expected, `hint` what to type next."""

    exit_code = 1
    names: tuple[str, ...] = ()  # of the host, or of the task and its host
    log: tuple[str, ...] = ()

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def with_hint(self, hint: str) -> Self:
        """Return a copy of this error with another hint."""
        return self._copy(hint=hint)

    def with_main_line(self) -> Self:
        """Return a copy of this error with only one line of its log: the last one that names an
        exception, or else the last one that is no noise."""
        own = _without_noise(self.log)
        named = tuple(line for line in own if EXCEPTION.match(plain_text(line)))
        return self._copy(log=(named or own)[-1:])

    def without_log(self) -> TfdeployError:
        """Return a copy of this error without the lines of a log."""
        return self._copy(log=())

    def _copy(self, **changes: object) -> Self:
        copy = type(self).__new__(type(self), *self.args)
        copy.__dict__ |= {**self.__dict__, **changes}
        return copy

    def __str__(self) -> str:
        prefix = f"{' on '.join(self.names)}: " if self.names else ""
        return _join_lines(f"{prefix}{self.message}", _log_lines(self), self.hint)


class Note(UserWarning):
    """What a user should know once, and what prevents nothing; the command line prints it."""


class InventoryError(TfdeployError):
    """hosts.toml cannot be read, or has an invalid value."""

    exit_code = 2


class PlanError(TfdeployError):
    """hosts.toml is valid, but no cluster can be built from it."""

    exit_code = 2


class RunError(TfdeployError):
    """The controller does not know the run, or cannot read or write its record."""

    exit_code = 2


class ClaimedRecord(RunError):
    """Hosts have a record of `run` that is not believed without a person. `doubtful` are the hosts
    whose claim a command that only reads ignores; () if enough of them agree. `can_be_agreed` is
    whether a person can agree to it: the message says all that it differs in."""

    def __init__(
        self,
        message: str,
        hint: str,
        run: str,
        doubtful: Sequence[str] = (),
        *,
        can_be_agreed: bool = False,
    ) -> None:
        super().__init__(message, hint)
        self.run, self.doubtful, self.can_be_agreed = run, tuple(doubtful), can_be_agreed

    def refused(self) -> Self:
        """Return the error of a person who does not agree, and has seen what it says."""
        return self._copy(message=f"nobody has agreed to the record of run {self.run}")


class NotTrusted(TfdeployError):
    """The user has not trusted what hosts.toml, or a run's record, would use on the controller."""

    exit_code = 2


class HostError(TfdeployError):
    """An error on one host. Its message may quote what the host sent, and is one line of limited
    length: a host can't add lines that look like tfdeploy's, nor hide those of other hosts."""

    def __init__(self, host: str, message: str, hint: str = "") -> None:
        super().__init__(_one_line(message), _one_line(hint))
        self.host = host
        self.names = (host,)


def _one_line(text: str) -> str:
    return escape_line(text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]}…")


class Unreachable(HostError):
    """The SSH connection could not be opened, or was lost."""


class AuthenticationFailed(HostError):
    """The host refused every key that was offered, or there is no key to offer."""


class HostKeyRefused(HostError):
    """The host's key is unknown, revoked, or not the one in known_hosts."""


class CommandFailed(HostError):
    """A command could not be run on the host."""


class CommandTimedOut(HostError):
    """A command on the host did not answer in time."""


class TransferFailed(HostError):
    """A transfer of files to or from the host failed."""


class AgentError(HostError):
    """The agent on the host refused the request, or its answer was invalid."""


class AgentExitedEarly(HostError):
    """The agent exited before it finished its answer: it was killed, or its host shuts down."""

    def __init__(
        self,
        host: str,
        message: str = "the agent exited before it finished its answer",
        hint: str = "check whether it was killed or its directory deleted; tfdeploy status asks "
        "again",
    ) -> None:
        super().__init__(host, message, hint)


class LeaseConflict(AgentError):
    """A requested port or GPU is in use: another live run, `run`, holds it, or a process that
    belongs to no run ("")."""

    def __init__(self, host: str, message: str, hint: str, run: str) -> None:
        super().__init__(host, message, hint)
        self.run = run


class OutdatedRecord(AgentError):
    """A host has a newer record of `run` than the controller: it was resumed or scaled after its
    start number `starts`, the launch `launched`. `hosts_file` is the run's hosts.toml."""

    def __init__(
        self,
        host: str,
        message: str,
        hint: str,
        run: str,
        starts: int,
        hosts_file: Path,
        launched: str = "",
    ) -> None:
        super().__init__(host, message, hint)
        self.run, self.starts, self.hosts_file = run, starts, hosts_file
        self.launched = launched


class NewerRun(OutdatedRecord):
    """A host has the record of `run`, which is newer than `older`, the newest one that the
    controller knows, and was started from the same `hosts_file`."""

    def __init__(
        self, host: str, message: str, hint: str, run: str, older: str, hosts_file: Path
    ) -> None:
        super().__init__(host, message, hint, run, -1, hosts_file)
        self.older = older


class RunBeingChanged(AgentError):
    """A controller stops the run and starts it again: it resumes or scales it."""


class RunDeleted(AgentError):
    """`tfdeploy prune` has deleted the run from the host. Without a name: from all of its hosts."""


class TaskError(TfdeployError):
    """An error of one task, for example `worker:1` on host `gpu-02`."""

    def __init__(
        self, task: str, host: str, message: str, hint: str = "", log: Sequence[str] = ()
    ) -> None:
        super().__init__(message, hint)
        self.task = task
        self.host = host
        self.log = tuple(log)
        self.names = (task, host)


class TaskFailed(TaskError):
    """The task's process failed. `log` has the last lines of its log."""


class TaskNotReady(TaskError):
    """The task's process runs, but its gRPC port did not answer as this task in time."""


class Cancelled(TfdeployError):
    """The program that called has set its `cancel`. No command of the command line raises it."""


class FleetError(TfdeployError):
    """All errors of several hosts or tasks."""

    def __init__(self, errors: Sequence[TfdeployError], hint: str = "") -> None:
        super().__init__("\n".join(_merge_similar(errors)), hint)
        self.errors = tuple(errors)

    def without_log(self) -> TfdeployError:
        """Return a copy of this error without the lines of logs."""
        return FleetError([error.without_log() for error in self.errors], self.hint)


@contextmanager
def prefix_plan_errors(cause: str) -> Iterator[None]:
    """Start the messages of PlanErrors with what the user wrote: a file, or an option."""
    try:
        yield
    except PlanError as error:
        raise PlanError(f"{cause}: {error.message}", error.hint) from None


def raise_all(errors: Sequence[TfdeployError], hint: str = "") -> None:
    """Raise the only error, or a FleetError of several; without errors, return.

    An error that occurs twice is raised once.
    """
    flat = [single for error in errors for single in individual_errors(error)]
    distinct = list({str(error): error for error in flat}.values())
    hints = [error.hint for error in errors if isinstance(error, FleetError) and error.hint]
    hint = "\n  ".join(dict.fromkeys([*hints, hint] if hint else hints))
    if len(distinct) == 1 and not hint:
        raise distinct[0]
    if distinct:
        raise FleetError(distinct, hint)


def individual_errors(error: TfdeployError) -> tuple[TfdeployError, ...]:
    """Return the errors of a FleetError; for any other error, the error itself."""
    return error.errors if isinstance(error, FleetError) else (error,)


def _merge_similar(errors: Sequence[TfdeployError]) -> Iterator[str]:
    """Yield the text of each error; one text for those that differ only in host-specific words. A
    few with logs of their own stay apart."""
    groups: dict[tuple[object, ...], list[TfdeployError]] = {}
    for error in errors:
        key = (type(error), _blank_names(error, error.message), _blank_names(error, error.hint))
        groups.setdefault(key if error.names else (error,), []).append(error)
    for group in groups.values():
        has_one_log = len({error.log for error in group}) == 1
        if len(group) > MAX_LISTED or (len(group) > 1 and has_one_log):
            yield _merged_text(group)
        else:
            yield from map(str, group)


def _blank_names(error: TfdeployError, text: str) -> tuple[str, ...]:
    """Return the words of `text`, with "" for each host-specific one."""
    return tuple(
        "" if word in error.names or HOST_SPECIFIC.fullmatch(word) else word
        for word in WORD.split(text)
    )


def _merged_text(group: Sequence[TfdeployError]) -> str:
    """Return one text with all names and addresses, and the ages, log and hint of the first."""
    first = group[0]
    names = " on ".join(map(fold_names, zip(*(error.names for error in group), strict=True)))
    words = zip(*(WORD.split(error.message) for error in group), strict=True)
    log = _log_lines(first)
    if log:
        log.insert(0, f"  the end of the log of {first.names[0]}:")
    text = "".join(each[0] if AGE.fullmatch(each[0]) else fold_names(each) for each in words)
    return _join_lines(f"{names}: {text}", log, first.hint)


def _log_lines(error: TfdeployError) -> list[str]:
    """Return the end of the log without TensorFlow's noise, and below it how much of that there
    is."""
    own = _without_noise(error.log)
    shown = [f"  | {escape_line(plain_text(line).expandtabs())}" for line in own]
    noise = len(error.log) - len(own)
    return [*shown, f"  ({format_count(noise, 'usual line')} of TensorFlow)"] if noise else shown


def _without_noise(log: Sequence[str]) -> tuple[str, ...]:
    from tfdeploy.formatting.known_messages import is_noise  # takes 1 ms

    return tuple(line for line in log if not is_noise(plain_text(line)))


def _join_lines(first: str, log: Sequence[str], hint: str) -> str:
    return "\n".join([first, *log, *([f"  {hint}"] if hint else [])])
