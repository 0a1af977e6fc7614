"""What is asked of a host whose stream of events is followed, and which of its events count."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from tfdeploy.errors import AgentError
from tfdeploy.shared.protocol.events import EventBatch, FollowEvents
from tfdeploy.shared.protocol.reports import Follow, LogLines, RunEvent, SelectLines, StateChange
from tfdeploy.shared.protocol.watching import HostSample, Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.streams.answer_stream import AnswerStream
    from tfdeploy.shared.protocol.message import Request

E = TypeVar("E")
SAMPLE_SILENCE_S = 30.0  # three times the longest pause between two samples
READ_SILENCE_S = 120.0  # for an agent that reads all of a log before it sends its last lines


class Subscription(ABC, Generic[E]):
    """One host's stream. If the host is lost while it is followed `forever`, the stream is
    requested again. A host that sends nothing for `silence_s` counts as lost (None: no limit)."""

    forever = True
    silence_s: float | None = None

    @abstractmethod
    def request(self) -> Request[E]:
        """Return the request that continues where the stream ended."""

    def stream(self, agent: Agent) -> AnswerStream[E]:
        """Return the stream that continues where the last one ended."""
        return agent.stream(self.request(), self.silence_s)

    @abstractmethod
    def accept(self, host: str, event: E) -> bool:
        """Check an event; return whether it says anything. Raises AgentError if the host lies."""


class RunEvents(Subscription[RunEvent]):
    """State changes, log lines and new results. No line is lost or repeated. Without `forever` a
    host has something to say at once, so one that is silent counts as lost."""

    def __init__(self, request: Follow | SelectLines) -> None:
        self.forever = request.forever
        self.silence_s = None if request.forever else READ_SILENCE_S
        self._request = request
        self._cursors: dict[str, str] = {}

    def request(self) -> Follow | SelectLines:
        cursors = {**self._cursors} or None
        return type(self._request)(**{**vars(self._request), "cursors": cursors})

    def accept(self, host: str, event: RunEvent) -> bool:
        """Return False for an event that only reports where a log begins."""
        if isinstance(event, StateChange):
            _refuse_foreign(host, event.state.task, self._request.tasks)
        if not isinstance(event, LogLines):
            return True
        _refuse_foreign(host, event.task, self._request.tasks)
        self._cursors[event.task] = event.cursor
        return bool(event.lines)


class StartedEvents(RunEvents):
    """State changes of tasks after their start: first over the stream of the request that started
    them."""

    def __init__(self, request: Follow, opened: AnswerStream[RunEvent] | None) -> None:
        super().__init__(request)
        self._opened = opened

    def stream(self, agent: Agent) -> AnswerStream[RunEvent]:
        opened, self._opened = self._opened, None
        return opened or super().stream(agent)


class HostSamples(Subscription[HostSample]):
    """Samples of what a host uses and how its tasks are."""

    silence_s = SAMPLE_SILENCE_S

    def __init__(self, request: Watch) -> None:
        self._request = request
        self._cursors: dict[str, str] = {}

    def request(self) -> Watch:
        return Watch(**{**vars(self._request), "cursors": {**self._cursors} or None})

    def accept(self, host: str, event: HostSample) -> bool:
        for task in (*(use.report.task for use in event.tasks), *(log.task for log in event.logs)):
            _refuse_foreign(host, task, self._request.tasks)
        self._cursors |= {log.task: log.cursor for log in event.logs}
        return True


class NewEvents(Subscription[EventBatch]):
    """What event files gain. `present` returns what the controller has of them now."""

    silence_s = SAMPLE_SILENCE_S

    def __init__(
        self, request: FollowEvents, present: Callable[[], list[tuple[str, str, int, str]]]
    ) -> None:
        self._request = request
        self._present = present

    def request(self) -> FollowEvents:
        return FollowEvents(**{**vars(self._request), "present": self._present()})

    def accept(self, host: str, event: EventBatch) -> bool:
        for task in [each.task for each in event.pieces] + [e.task for e in event.unreadable]:
            _refuse_foreign(host, task, self._request.tasks)
        return True


def _refuse_foreign(host: str, task: str, tasks: list[str]) -> None:
    """Raise AgentError if a host reports a task of another host: it may lie."""
    if task not in tasks:
        raise AgentError(host, f"it reported task {task!r:.40}, which is not one of its tasks")
