"""The side of the other tasks: reports, questions, and pieces of offered files."""

from __future__ import annotations

import os
import threading
import time
from typing import BinaryIO, Callable, Optional, Tuple

from ....shared.protocol.record import replace
from ....shared.records import QUEUED, HeartbeatSettings
from . import signing
from .messages import Answer, Question, without_defaults
from .signing import REQUEST_TIMEOUT_S

INTERVAL_S = 1.0
MAX_REQUESTS_PER_S = 50  # of all tasks of a run together
PIECE_TIMEOUT_S = 60.0  # the chief's disk may be busy
QUEUED_INTERVAL_S = 20.0  # of a task that waits in the queue for long


class HeartbeatClient:
    """The side of the other tasks: sends reports from its own thread.

    `answer` is the server's last answer, with the lists of an earlier one if they have not changed,
    and `acknowledged` the report that it answers, which has changed at `changed_at`; None before
    the first answer.
    `answered_at` is when it arrived, and `ended_at` when an answer first said that the run has
    ended, on this host's monotonic clock. `refused_s` is for how long the chief's host, which has
    answered before, has refused each connection: nobody listens there any more. A host that is away
    does not refuse. `get_report` returns the current report.
    `on_news` is called after an answer that differs from the one before.
    """

    def __init__(
        self,
        settings: HeartbeatSettings,
        get_report: Callable[[], Question],
        on_news: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self.answer = Answer()
        self.acknowledged: Optional[Question] = None
        self.answered_at = time.monotonic()
        self.ended_at: Optional[float] = None
        self.changed_at = self.answered_at
        self.refused_s = 0.0
        self._refused_at: Optional[float] = None
        self._get_report = get_report
        self._on_news = on_news
        self._wake_up = threading.Event()
        self._sending = threading.Lock()  # otherwise an older report could arrive after the last
        threading.Thread(target=self._send_forever, daemon=True).start()

    @property
    def is_refused(self) -> bool:
        """Whether the chief's host, which has answered before, refused the last connection."""
        return self._refused_at is not None

    def send_soon(self) -> None:
        """Make the thread send a report at once, because the state has changed."""
        self._wake_up.set()

    def send(self) -> bool:
        """Send one report now. Return False if there is no valid answer."""
        with self._sending:
            last = self.answer
            try:
                report = self._get_report()
                self.answer = self._request(report)
            except (OSError, signing.Untrusted) as error:  # the chief may have ended before
                is_refused = isinstance(error, ConnectionRefusedError)
                self._count_refusals(is_refused and self.acknowledged is not None)
                return False
            self._count_refusals(False)
            self.answered_at = time.monotonic()
            if report != self.acknowledged:
                self.changed_at = self.answered_at
            self.acknowledged = report
            if self.answer.ended and self.ended_at is None:
                self.ended_at = self.answered_at
            if self.answer != last:
                self._on_news()
            return True

    def _count_refusals(self, is_refused: bool) -> None:
        now = time.monotonic()
        since = now if self._refused_at is None else self._refused_at
        self._refused_at = since if is_refused else None
        self.refused_s = now - since if is_refused else 0.0

    def _request(self, report: Question) -> Answer:
        last = self.answer
        sources = [*report.sources, *([last.seen_from] if last.seen_from else [])]
        answer, _ = request(self.settings, replace(report, known_lists=last.lists, sources=sources))
        if answer.lists == last.lists:
            return replace(answer, unfinished=last.unfinished, sources=last.sources)
        return answer

    def _send_forever(self) -> None:
        interval_s = max(INTERVAL_S, len(self.settings.tasks) / MAX_REQUESTS_PER_S)
        while True:
            self._wake_up.clear()
            self.send()
            pause_s = interval_s
            if self.acknowledged and self.acknowledged.state == QUEUED:
                unchanged_s = time.monotonic() - self.changed_at
                pause_s = max(interval_s, min(QUEUED_INTERVAL_S, unchanged_s / 10))
            self._wake_up.wait(pause_s * (0.8 + 0.4 * os.urandom(1)[0] / 255))


def request(
    settings: HeartbeatSettings, question: Question, timeout_s: float = REQUEST_TIMEOUT_S
) -> Tuple[Answer, bytes]:
    """Send a question to the chief's supervisor, with the time; return the answer and its data.

    Raises OSError or signing.Untrusted if it does not answer.
    """
    body = without_defaults(replace(question, sent_ns=question.sent_ns or time.monotonic_ns()))
    answer, data = signing.request(settings, body, timeout_s)
    return signing.read(Answer, answer), data


def fetch_file(settings: HeartbeatSettings, file: str, size: int, target: BinaryIO) -> None:
    """Write the first `size` bytes of a file that the chief's supervisor offers to `target`.

    Raises as `request` does, and ValueError if the file is shorter.
    """
    while target.tell() < size:
        question = Question(file=file, offset=target.tell(), known_lists=None)
        _, data = request(settings, question, PIECE_TIMEOUT_S)
        if not data:
            raise ValueError("{} is shorter than announced".format(file))
        target.write(data)
