"""The tree of errors: what went wrong, where, and what to type next.

    TfdeployError(message, hint)
    ├── InventoryError · PlanError · RunError       exit 2: nothing was touched
    ├── HostError(host)                             exit 1
    │   Unreachable · AuthenticationFailed · HostKeyRefused · CommandFailed
    │   CommandTimedOut · TransferFailed · AgentError (Leased) · AgentSilent
    ├── TaskError(task, host)                       exit 1
    │   TaskFailed · TaskNotReady
    └── FleetError(errors)                          several at once: none hides another

The host's name is added in transport, the task's in steps, the words for people in console.
What many hosts have met is told once, with all of their names and addresses.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdeploy.hostnames import FEW, folded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WORD = re.compile(r"(\bport \d+|(?<![\w.:-])[\w.:-]*\w)")
# What tells hosts apart that have met the same, beside their names: addresses, ports, tasks.
APART = re.compile(
    r"\d+(?:\.\d+){3}(?::\d+)?|[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7}|port \d+"
    r"|(?:ps|chief|worker|evaluator):\d+"
)


class TfdeployError(Exception):
    """Base of all. `message` says what was found and expected; `hint` what to type next."""

    exit_code = 1
    names: tuple[str, ...] = ()  # the host, or the task and its host, that it is about
    log: tuple[str, ...] = ()

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        about = f"{' on '.join(self.names)}: " if self.names else ""
        log = [f"  | {line}" for line in self.log]
        return _lines(f"{about}{self.message}", log, self.hint)


class InventoryError(TfdeployError):
    """hosts.toml can't be read, or says something that it may not."""

    exit_code = 2


class PlanError(TfdeployError):
    """The inventory is well-formed, but no cluster can be made of it."""

    exit_code = 2


class RunError(TfdeployError):
    """The run that was asked for isn't known here."""

    exit_code = 2


class HostError(TfdeployError):
    """Something about one host."""

    def __init__(self, host: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.host = host
        self.names = (host,)


class Unreachable(HostError):
    """No SSH connection could be made, or the one there was is gone."""


class AuthenticationFailed(HostError):
    """The host answered and refused every key that was offered."""


class HostKeyRefused(HostError):
    """The host's key is unknown, or is not the one in known_hosts."""


class CommandFailed(HostError):
    """A command on the host could not be run at all."""


class CommandTimedOut(HostError):
    """A command on the host gave no answer in its time."""


class TransferFailed(HostError):
    """rsync to or from the host failed."""


class AgentError(HostError):
    """The agent on the host refused what it was asked, or answered nonsense."""


class AgentSilent(HostError):
    """The agent ended before its last word: it was killed, or its host is going down."""


class Leased(AgentError):
    """A port or a GPU that was asked for is held by another live run, `run`."""

    def __init__(self, host: str, message: str, hint: str, run: str) -> None:
        super().__init__(host, message, hint)
        self.run = run


class TaskError(TfdeployError):
    """Something about one task, e.g. `worker:1` on host `gpu-02`."""

    def __init__(
        self, task: str, host: str, message: str, hint: str = "", log: Sequence[str] = ()
    ) -> None:
        super().__init__(message, hint)
        self.task = task
        self.host = host
        self.log = tuple(log)
        self.names = (task, host)


class TaskFailed(TaskError):
    """The task's process ended badly. `log` holds the last lines that it wrote."""


class TaskNotReady(TaskError):
    """The task's process lives, but its gRPC port didn't answer as this task in time."""


class FleetError(TfdeployError):
    """What went wrong on several hosts or tasks, all of it."""

    def __init__(self, errors: Sequence[TfdeployError], hint: str = "") -> None:
        super().__init__("\n".join(_told(errors)), hint)
        self.errors = tuple(errors)


def raise_all(errors: Sequence[TfdeployError], hint: str = "") -> None:
    """Raise nothing, the one error, or a FleetError of all of them; each is told once."""
    flat = [one for error in errors for one in parts(error)]
    told = list({str(error): error for error in flat}.values())
    hints = [error.hint for error in errors if isinstance(error, FleetError) and error.hint]
    hint = "\n  ".join(dict.fromkeys([*hints, hint] if hint else hints))
    if len(told) == 1 and not hint:
        raise told[0]
    if told:
        raise FleetError(told, hint)


def parts(error: TfdeployError) -> tuple[TfdeployError, ...]:
    """The errors that a FleetError holds; any other is its own only part."""
    return error.errors if isinstance(error, FleetError) else (error,)


def _told(errors: Sequence[TfdeployError]) -> Iterator[str]:
    """Each of them; many that are the same, but for what tells their hosts apart, as one."""
    kinds: dict[tuple[object, ...], list[TfdeployError]] = {}
    for error in errors:
        same = (type(error), _nameless(error, error.message), _nameless(error, error.hint))
        kinds.setdefault(same if error.names else (error,), []).append(error)
    for alike in kinds.values():
        if len(alike) > FEW:
            yield _together(alike)
        else:
            yield from map(str, alike)


def _nameless(error: TfdeployError, text: str) -> tuple[str, ...]:
    words = WORD.split(text)
    return tuple("" if word in error.names or APART.fullmatch(word) else word for word in words)


def _together(alike: Sequence[TfdeployError]) -> str:
    """All of their names and addresses; the log and the hint of the first."""
    first = alike[0]
    about = " on ".join(map(folded, zip(*(error.names for error in alike), strict=True)))
    words = zip(*(WORD.split(error.message) for error in alike), strict=True)
    log = [f"  | {line}" for line in first.log]
    if log:
        log.insert(0, f"  the end of the log of {first.names[0]}:")
    return _lines(f"{about}: {''.join(map(folded, words))}", log, first.hint)


def _lines(first: str, log: Sequence[str], hint: str) -> str:
    return "\n".join([first, *log, *([f"  {hint}"] if hint else [])])
