"""Follow a run on many hosts: one stream of events, which survives the loss of a connection."""

from __future__ import annotations

import logging
import math
import queue
import random
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar, cast

from tfdeploy.errors import AgentError, CommandTimedOut, TfdeployError
from tfdeploy.hosts.events import Event, EventQueue, HostIsBack, may_return
from tfdeploy.hosts.parallel import Cancellation
from tfdeploy.hosts.silence import Silence
from tfdeploy.shared.protocol.reports import Follow, HostSample, LogLines, StateChange

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfdeploy.hosts.agent_client import Agent, AnswerStream
    from tfdeploy.shared.protocol.message import Request
    from tfdeploy.shared.protocol.reports import RunEvent


SAMPLE_SILENCE_S = 30.0  # three times the longest pause between two samples
READ_SILENCE_S = 120.0  # for an agent that reads all of a log before it sends its last lines


class Subscription:
    """One host's stream. If the host is lost while it is followed `forever`, the stream is
    requested again, and continues where it was: no line of a log is lost or repeated. A host that
    sends nothing for `silence_s` counts as lost (None: no limit); without `forever` it has
    something to say at once.

    `opened` is a stream that answers another request, such as a start, and is used first.
    """

    def __init__(self, request: Follow, opened: AnswerStream[RunEvent] | None = None) -> None:
        self.forever = request.forever
        self.silence_s = None if request.forever else READ_SILENCE_S
        if request.samples:
            self.silence_s = SAMPLE_SILENCE_S
        self._request, self._opened = request, opened
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
        AgentError if the host lies."""
        if self._request.samples and not isinstance(event, HostSample):
            raise AgentError(agent.host, f"invalid answer: {event!r:.40}, expected HostSample")
        for task in _tasks(event):
            if task not in self._request.tasks:  # it may lie
                message = f"it reported task {task!r:.40}, which is not one of its tasks"
                raise AgentError(agent.host, message)
        for log in event.logs if isinstance(event, HostSample) else (event,):
            if isinstance(log, LogLines):
                self._cursors[log.task] = log.cursor
        return not isinstance(event, LogLines) or bool(event.lines)


def _tasks(event: RunEvent) -> list[str]:
    """Return the tasks that an event is about."""
    if isinstance(event, HostSample):
        return [*(use.report.task for use in event.tasks), *(log.task for log in event.logs)]
    if isinstance(event, StateChange):
        return [event.state.task]
    return [event.task] if isinstance(event, LogLines) else []


L = TypeVar("L")

_log = logging.getLogger(__name__)
END_S = 2.0
END_OF_EACH_S = 0.01  # of a thousand streams, on a busy machine
MAX_CONNECTING = 128
CANCEL_S = 0.2  # how often `cancel` is looked at


@dataclass(frozen=True)
class FollowTimes:
    """For how long hosts are waited for, in seconds."""

    retry_s: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 15.0)  # after each loss in turn
    connect_s: float = 30.0  # for a turn to connect
    finish_s: float = 60.0  # for the last answers of all hosts, after a stream that has no limit


TIMES = FollowTimes()


class Following:
    """The events of many hosts, merged. Leaving the context ends all streams, from any thread.

    If a host is lost while it is followed forever, it is asked again until it answers, and
    continues where it was.
    """

    def __init__(
        self,
        subscriptions: Mapping[Agent, Subscription],
        cancellation: Cancellation | None = None,
        times: FollowTimes = TIMES,
    ) -> None:
        self._times = times
        self._cancellation = cancellation or Cancellation(None)
        self._events = EventQueue[tuple[str, Event | None]]()
        self._streams: dict[str, AnswerStream[RunEvent]] = {}
        self._closed = threading.Event()
        self._finishing = threading.Event()
        self._active_hosts = {agent.host for agent in subscriptions}
        self._silence = Silence(self._active_hosts)
        self._connecting = threading.Semaphore(MAX_CONNECTING)
        self._listeners = [
            threading.Thread(target=self._listen, args=(agent, subscription), daemon=True)
            for agent, subscription in subscriptions.items()
        ]
        for listener in self._listeners:
            listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._events.close()
        for stream in list(self._streams.values()):
            stream.finish()
        # So that their sessions can be used again: another agent costs more than its last answer.
        deadline = time.monotonic() + max(END_S, END_OF_EACH_S * len(self._listeners))
        for listener in self._listeners:
            listener.join(max(0.0, deadline - time.monotonic()))
        for stream in list(self._streams.values()):
            stream.close()

    def events(self, deadline: float | None = None) -> Iterator[tuple[str, Event]]:
        """Yield (host, event) as they come, until all hosts have finished, or until `deadline` (of
        time.monotonic). A host that is lost gives (host, its HostError); if `may_return(error)` and
        it is followed forever, (host, HostIsBack) comes when it answers again. Raises Cancelled.
        """
        while self._active_hosts and not self._closed.is_set():
            left_s = math.inf if deadline is None else max(0.0, deadline - time.monotonic())
            quiet_s = self._silence.left_s()
            try:
                host, event = self._next_event(min(left_s, quiet_s))
            except queue.Empty:
                if left_s <= quiet_s:
                    return
                self._silence.check()
                continue
            self._silence.end(host)
            if event is None:
                self._active_hosts.discard(host)
            else:
                yield host, event

    def finish_with(
        self, requests: Mapping[str, Request[L]]
    ) -> tuple[dict[str, L], list[TfdeployError]]:
        """End every host's stream with one more request; return the answers and the errors. A host
        whose stream has ended already is in neither; one that takes longer than `finish_s` fails.
        """
        self._finishing.set()
        streams = {host: each for host, each in list(self._streams.items()) if host in requests}
        for host, stream in streams.items():
            stream.finish_with(requests[host])
        events = self.events(time.monotonic() + self._times.finish_s)
        errors = [event for _, event in events if isinstance(event, TfdeployError)]
        late = f"the agent gave no answer within {self._times.finish_s:g} s"
        errors += [CommandTimedOut(host, late) for host in streams if host in self._active_hosts]
        answers = {host: stream.next_answer for host, stream in streams.items()}
        given = {h: cast("L", answer) for h, answer in answers.items() if answer is not None}
        return given, errors

    def _next_event(self, limit_s: float) -> tuple[str, Event | None]:
        """Wait for an event, up to `limit_s`. Raises queue.Empty, and Cancelled."""
        if self._cancellation.event is None:
            return self._events.get(None if limit_s == math.inf else limit_s)
        end = time.monotonic() + limit_s
        while True:
            self._cancellation.check()
            left_s = max(0.0, end - time.monotonic())
            try:
                return self._events.get(min(CANCEL_S, left_s))
            except queue.Empty:
                if left_s <= CANCEL_S or self._closed.is_set():
                    raise

    def _listen(self, agent: Agent, subscription: Subscription) -> None:
        """Pass on a host's events until it has finished; of several failures in a row the first."""
        failures = 0
        try:
            while not self._closed.is_set():
                try:
                    for event, size in self._of_host(agent, subscription):
                        if failures:
                            self._put(agent.host, HostIsBack())
                        failures = 0
                        self._put(agent.host, event, size)
                    return
                except TfdeployError as error:
                    ends = self._finishing.is_set() or not subscription.forever
                    again = may_return(error) and not ends
                    if failures == 0 or not again:
                        self._put(agent.host, error)
                    if not again:
                        return
                    failures += 1
                    pause_s = _pause_s(self._times.retry_s, failures)
                    _log.info("%s: lost (%s); asked again in %.1f s", agent.host, error, pause_s)
                    self._closed.wait(pause_s)
                    if self._finishing.is_set():
                        return
        finally:
            self._put(agent.host, None)

    def _of_host(self, agent: Agent, subscription: Subscription) -> Iterator[tuple[RunEvent, int]]:
        """Yield those events of one stream that say anything, with their sizes in bytes."""
        stream = subscription.stream(agent)
        self._streams[agent.host] = stream
        if self._closed.is_set() or self._finishing.is_set():
            stream.finish()
        try:
            for event in self._connected_in_turn(stream):
                if subscription.accept(agent, event):
                    yield event, stream.answer_bytes
        finally:
            stream.close()

    def _connected_in_turn(self, stream: AnswerStream[RunEvent]) -> Iterator[RunEvent]:
        """Limit how many hosts are connected to at the same time: a thousand handshakes would
        delay each other."""
        answers = iter(stream)
        # With a timeout: hosts that hang must not block the others forever.
        in_turn = self._connecting.acquire(timeout=self._times.connect_s)
        try:
            first = None if self._closed.is_set() else next(answers, None)
        finally:
            if in_turn:
                self._connecting.release()
        if first is not None:
            yield first
            yield from answers

    def _put(self, host: str, event: Event | None, size: int = 0) -> None:
        self._events.put((host, event), size)


def _pause_s(retry_s: tuple[float, ...], failures: int) -> float:
    """Return the pause after so many failures in a row, with jitter: hosts that were lost together
    must not all be asked at the same moment."""
    return retry_s[min(failures, len(retry_s)) - 1] * random.uniform(0.75, 1.25)
