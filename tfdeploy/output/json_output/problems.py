"""Errors and notes in the documents of --json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.errors import individual_errors
from tfdeploy.output.json_output.shape import Shape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfdeploy.errors import TfdeployError


@dataclass(frozen=True, kw_only=True)
class Problem(Shape):
    """An error or a note."""

    host: str | None
    """The host that it is about, if it is about one."""
    task: str | None
    """The task that it is about, if it is about one."""
    message: str
    """What was found, and what was expected."""
    hint: str | None
    """What to type or to edit next."""
    log: list[str]
    """The last lines of the task's log, if its process failed."""


@dataclass(frozen=True, kw_only=True)
class FailureDocument(Shape):
    """What a command prints instead of its document if it fails."""

    error: Problem
    """Everything that went wrong, in one message."""
    errors: list[Problem]
    """The same, one by one: an object for each host or task."""


def failure_document(error: TfdeployError) -> FailureDocument:
    return FailureDocument(error=to_problem(error), errors=to_problems([error]))


def to_problems(errors: Iterable[TfdeployError]) -> list[Problem]:
    return [to_problem(each) for error in errors for each in individual_errors(error)]


def to_problem(error: TfdeployError) -> Problem:
    *tasks, host = error.names or (None,)
    return Problem(
        host=host,
        task=tasks[0] if tasks else None,
        message=error.message,
        hint=error.hint or None,
        log=list(error.log),
    )
