"""What is fetched from one host in parts that share its round trips.

A part is a generator that sends its requests in a pipeline, and yields before it reads their
answers: so all parts have sent theirs before the first answer is waited for.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tfdeploy.hosts.pipelines.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tfdeploy.hosts.agent_client import Agent

T = TypeVar("T")
Steps = Generator[None, None, T]


class Part(Generic[T]):
    """One part; `result` is what it returned."""

    result: T

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps

    def advance(self) -> bool:
        """Run the part until it waits for answers again; return False when it has ended."""
        try:
            next(self._steps)
        except StopIteration as end:
            self.result = end.value
            return False
        return True

    def close(self) -> None:
        """End the part, whether it has finished or not."""
        self._steps.close()


def run_parts(parts: Sequence[Part[Any]]) -> None:
    """Run parts of one pipeline to their end, in rounds. If one fails, all end."""
    running = list(parts)
    try:
        while running:
            running = [part for part in running if part.advance()]
    finally:
        for part in parts:
            part.close()


def run_alone(agent: Agent, fetch: Callable[[Pipeline], Steps[T]]) -> T:
    """Run one part in a pipeline of its own; return its result."""
    with Pipeline(agent) as pipeline:
        part = Part(fetch(pipeline))
        run_parts([part])
        return part.result
