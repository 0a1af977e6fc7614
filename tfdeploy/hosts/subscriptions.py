"""What is asked of a host whose stream of events is followed, and which of its events count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.errors import AgentError
from tfdeploy.shared.protocol.reports import Follow, HostSample, LogLines, NewEvents, StateChange

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdeploy.hosts.agent_client import Agent, AnswerStream
    from tfdeploy.shared.protocol.reports import RunEvent

SAMPLE_SILENCE_S = 30.0  # three times the longest pause between two samples
READ_SILENCE_S = 120.0  # for an agent that reads all of a log before it sends its last lines
OLDER = "another version of tfdeploy started this run, and its agent can't"


class Subscription:
    """One host's stream. If the host is lost while it is followed `forever`, the stream is
    requested again, and continues where it was: no line of a log is lost or repeated. A host that
    sends nothing for `silence_s` counts as lost (None: no limit); without `forever` it has
    something to say at once.

    `opened` is a stream that answers another request, such as a start, and is used first.
    `on_event` is called with each event in the host's own thread, before it is passed on.
    """

    def __init__(
        self,
        request: Follow,
        opened: AnswerStream[RunEvent] | None = None,
        on_event: Callable[[Agent, RunEvent], None] = lambda agent, event: None,
    ) -> None:
        self.forever = request.forever
        self.silence_s = None if request.forever else READ_SILENCE_S
        if request.samples:
            self.silence_s = SAMPLE_SILENCE_S
        self._request, self._opened, self._on_event = request, opened, on_event
        self._cursors: dict[str, str] = {}

    def request(self) -> Follow:
        """Return the request that continues where the stream ended."""
        return Follow(**{**vars(self._request), "cursors": {**self._cursors} or None})

    def stream(self, agent: Agent) -> AnswerStream[RunEvent]:
        """Return the stream that continues where the last one ended."""
        opened, self._opened = self._opened, None
        return opened or agent.stream(self.request(), self.silence_s)

    def accept(self, agent: Agent, event: RunEvent) -> bool:
        """Return whether an event says anything: one may only report where a log begins. Raises
        AgentError if the host lies, or if its agent does not know what was asked."""
        self._check_version(agent.host, event)
        for task in _tasks(event):
            if task not in self._request.tasks:  # it may lie
                message = f"it reported task {task!r:.40}, which is not one of its tasks"
                raise AgentError(agent.host, message)
        for log in event.logs if isinstance(event, HostSample) else (event,):
            if isinstance(log, LogLines):
                self._cursors[log.task] = log.cursor
        self._on_event(agent, event)
        return not isinstance(event, LogLines) or bool(event.lines)

    def _check_version(self, host: str, event: RunEvent) -> None:
        """Raise AgentError if an older agent has answered a part of the request only."""
        if self._request.samples and not isinstance(event, HostSample):
            hint = "tfdeploy status and tfdeploy logs -f show it"
            raise AgentError(host, f"{OLDER} be watched", hint)
        if self._request.selects and isinstance(event, LogLines) and not event.selected:
            hint = "leave out --grep and --since: tfdeploy logs | grep PATTERN"
            raise AgentError(host, f"{OLDER} select lines", hint)


def _tasks(event: RunEvent) -> list[str]:
    """Return the tasks that an event is about."""
    if isinstance(event, HostSample):
        return [*(use.report.task for use in event.tasks), *(log.task for log in event.logs)]
    if isinstance(event, StateChange):
        return [event.state.task]
    if isinstance(event, NewEvents):
        return [event.of]
    return [event.task] if isinstance(event, LogLines) else []
