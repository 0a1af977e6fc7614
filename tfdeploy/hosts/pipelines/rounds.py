"""What is fetched from one host in parts that share its round trips.

A part is a generator that sends its requests in a pipeline, and yields before it reads their
answers: so all parts have sent theirs before the first answer is waited for.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tfdeploy.errors import HostError
from tfdeploy.hosts.pipelines.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tfdeploy.hosts.agent_client import Agent

T = TypeVar("T")
Steps = Generator[None, None, T]


class RoundPart(Generic[T]):
    """One part; `result` is what it returned. `is_unfinished` says whether it can be run again: it
    has neither ended nor failed."""

    result: T

    def __init__(self, fetch: Callable[[Pipeline], Steps[T]]) -> None:
        self._fetch = fetch
        self.is_unfinished = True

    def begin(self, pipeline: Pipeline) -> None:
        self._steps = self._fetch(pipeline)

    def advance(self) -> bool:
        """Run the part until it waits for answers again; return False when it has ended."""
        self.is_unfinished = False
        try:
            next(self._steps)
        except StopIteration as end:
            self.result = end.value
            return False
        self.is_unfinished = True
        return True

    def close(self) -> None:
        """End the part, whether it has finished or not."""
        self._steps.close()


def run_parts(agent: Agent, parts: Sequence[RoundPart[Any]]) -> None:
    """Run parts to their end, in rounds of one pipeline. If one fails, the others are run once
    more, one after the other; then its error is raised."""
    try:
        with Pipeline(agent) as pipeline:
            run_rounds(pipeline, parts)
    except (HostError, OSError):
        with suppress(HostError, OSError):
            for part in [part for part in parts if part.is_unfinished]:
                run_parts(agent, [part])
        raise


def run_rounds(pipeline: Pipeline, parts: Sequence[RoundPart[Any]]) -> None:
    """Run parts of a pipeline to their end, in rounds. If one fails, all end."""
    running = list(parts)
    for part in parts:
        part.begin(pipeline)
    try:
        while running:
            running = [part for part in running if part.advance()]
    finally:
        for part in parts:
            part.close()


def run_alone(agent: Agent, fetch: Callable[[Pipeline], Steps[T]]) -> T:
    """Run one part in a pipeline of its own; return its result."""
    part = RoundPart(fetch)
    run_parts(agent, [part])
    return part.result
