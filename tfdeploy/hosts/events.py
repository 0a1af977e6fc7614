"""What hosts report while they are followed, on its way to the one thread that handles it."""

from __future__ import annotations

import queue
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from tfdeploy.errors import (
    AgentError,
    AuthenticationFailed,
    CommandFailed,
    HostError,
    HostKeyRefused,
    TfdeployError,
)
from tfdeploy.shared.protocol.reports import (
    HostSample,
    LogLines,
    NewCheckpoint,
    NewOutputs,
    RunEvent,
    StateChange,
)

if TYPE_CHECKING:
    from tfdeploy.shared.records import TaskReport

E = TypeVar("E")

# A host that refuses a request will refuse it again; any other may be back later.
REFUSALS = (AgentError, AuthenticationFailed, HostKeyRefused, CommandFailed)
# What may wait, in bytes as they were received; as objects, short lines take ten times as much.
MAX_WAITING_BYTES = 8 << 20
EVENT_BYTES = 32 << 10  # each event counts for more than this: 256 of the smallest may wait


def may_return(error: TfdeployError) -> bool:
    """Return whether a host with this error may answer later. Other errors than a host's are of the
    controller."""
    return isinstance(error, HostError) and not isinstance(error, REFUSALS)


@dataclass(frozen=True)
class HostIsBack:
    """A host that was lost answers again."""


Event = RunEvent | TfdeployError | HostIsBack


class Listener:
    """What is done with the events of hosts. A subclass has the methods for those that it needs."""

    def dispatch(self, host: str, event: Event) -> None:
        """Call the method for an event. Raises an error that is not of the host."""
        match event:
            case StateChange():
                self.on_state(host, event.state)
            case LogLines():
                self.on_lines(host, event)
            case HostSample():
                self.on_sample(host, event)
            case NewCheckpoint():
                self.on_checkpoint(event.checkpoint)
            case NewOutputs():
                self.on_outputs()
            case HostIsBack():
                self.on_back(host)
            case HostError():
                self.on_error(event)
            case TfdeployError():
                raise event

    def on_state(self, host: str, report: TaskReport) -> None:
        """Take the changed state of a task."""

    def on_lines(self, host: str, log: LogLines) -> None:
        """Take new lines of a log."""

    def on_sample(self, host: str, sample: HostSample) -> None:
        """Take a sample of a host."""

    def on_checkpoint(self, name: str) -> None:
        """Take the name of a checkpoint that the chief has written."""

    def on_outputs(self) -> None:
        """Take that the chief has written other files."""

    def on_error(self, error: HostError) -> None:
        """Take that a host is lost, or has refused the request; see `may_return`."""

    def on_back(self, host: str) -> None:
        """Take that a host that was lost answers again."""


class EventQueue(Generic[E]):
    """Events in the order in which they came. While MAX_WAITING_BYTES wait, hosts have to wait,
    too: nobody reads what they send, until events are handled."""

    def __init__(self) -> None:
        self.waiting_bytes = 0
        self._events: deque[tuple[E, int]] = deque()
        self._is_closed = False
        self._changed = threading.Condition()

    def put(self, event: E, size: int) -> None:
        """Add an event of `size` bytes as soon as there is room; drop it if the queue is closed."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or self.waiting_bytes < MAX_WAITING_BYTES
            )
            if not self._is_closed:
                self._events.append((event, size + EVENT_BYTES))
                self.waiting_bytes += size + EVENT_BYTES
                self._changed.notify_all()

    def get(self, limit_s: float | None) -> E:
        """Remove the first event. Raises queue.Empty if none comes within `limit_s`, or if the
        queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._events, limit_s)
            if self._is_closed or not self._events:
                raise queue.Empty
            event, size = self._events.popleft()
            self.waiting_bytes -= size
            self._changed.notify_all()
            return event

    def close(self) -> None:
        """Wake all threads that wait, from any thread; there are no more events."""
        with self._changed:
            self._is_closed = True
            self._events.clear()
            self._changed.notify_all()
