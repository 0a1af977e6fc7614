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
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class TfdeployError(Exception):
    """Base of all. `message` says what was found and expected; `hint` what to type next."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


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

    def __str__(self) -> str:
        return f"{self.host}: {super().__str__()}"


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

    def __str__(self) -> str:
        lines = [f"{self.task} on {self.host}: {self.message}"]
        lines += [f"  | {line}" for line in self.log]
        if self.hint:
            lines.append(f"  {self.hint}")
        return "\n".join(lines)


class TaskFailed(TaskError):
    """The task's process ended badly. `log` holds the last lines that it wrote."""


class TaskNotReady(TaskError):
    """The task's process lives, but its gRPC port didn't answer as this task in time."""


class FleetError(TfdeployError):
    """What went wrong on several hosts or tasks, all of it."""

    def __init__(self, errors: Sequence[TfdeployError], hint: str = "") -> None:
        super().__init__("; ".join(str(error) for error in errors), hint)
        self.errors = tuple(errors)

    def __str__(self) -> str:
        lines = [str(error) for error in self.errors]
        return "\n".join([*lines, f"  {self.hint}"] if self.hint else lines)


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
