"""The heartbeat of a run: every supervisor regularly sends its task's state to the chief's.

The chief's supervisor runs the server; its answers say how the run is going. The controller takes
no part in it, and no other process does.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from typing import Any, BinaryIO, Callable, Dict, Iterable, List, Optional, Set, Tuple

from ...shared.protocol.record import Record, field, replace, to_json
from ...shared.records import ENDED, QUEUED, HeartbeatSettings, Pace, TaskState
from ...shared.trials import TrialOrder, TrialRecord
from ..machine.peers import plain
from ..machine.sockets import ConnectionServer, DeadlineSocket
from . import signing

Body = Dict[str, Any]
OnTrial = Callable[[str, TrialRecord, List[TrialRecord]], TrialOrder]


INTERVAL_S = 1.0
MAX_REQUESTS_PER_S = 50  # of all tasks of a run together
TIMEOUT_S = 5.0
PIECE_TIMEOUT_S = 60.0
QUEUED_INTERVAL_S = 20.0  # of a task that waits in the queue for long
# What the chief's supervisor says to tasks in the queue: wait for your turn, let others pass, go.
WAIT, ASIDE, GO = "wait", "aside", "go"
WITHOUT_LISTS: Body = {"known": None}  # a part of a request that needs neither list


class Report(Record):
    """The last report of a task, received `at` on this host's monotonic clock."""

    at: float
    state: str
    reason: str
    sent: int = 0  # the sender's own clock in ns: an older report that is replayed does not count
    sources: List[str] = field(default_factory=list)  # from which its host connects to others
    stops_run: bool = False  # the task was ended by the command that stops the whole run
    silent: bool = False  # and nobody is notified of that end
    cause: str = ""
    restarts: int = 0
    lost_round: int = 0  # the newest of rounds.py that its loss has begun
    holds: bool = False  # it waits in the queue, and has taken its GPUs and ports
    idle_s: Optional[float] = 0.0  # for how long its GPUs have been idle; None: it has none

    def task_state(self) -> TaskState:
        """Return the state of the task, as far as it was reported."""
        return TaskState(
            self.state, since=0.0, restarts=self.restarts, reason=self.reason, cause=self.cause
        )


class HeartbeatServer:
    """The chief's side: answers every task that signs its requests, and stores its reports.

    An answer has `ended` ({"state", "reason"} of the chief, None before its end), `checkpoint` (the
    offered checkpoint or None), `outputs` (the list of other offered files or None), `going` (the
    tasks that have not reported their end), `sources` (the addresses of the run's hosts) and the
    newest `round` of rounds.py with the task `lost` that began it. The lists `going` and `sources`
    grow with the run: a request whose `known` is the digest of the current ones, `lists`, or None,
    gets neither. `seen` is the address from which the request came. Anybody may have sent
    it again, so it counts only once the task has it among the sources of a report, which are
    signed. A request with `advance` also gets the count of run_progress.py, one with `backup` the
    offer of backups.py, one with `trial` what `on_trial` answers to it and to `trials`, the records
    of the sender's host, and one with `file` and `offset` a piece of an offered file from `read`.
    An answer to a queued task has the `turn` and the `priority` of its run.
    `on_news` is called, in a thread of the server, when a request has changed `reports`. Raises
    OSError if the port is taken.
    """

    def __init__(
        self,
        settings: HeartbeatSettings,
        read: Callable[[str, int], bytes],
        progress_count: Callable[[], int] = lambda: 0,
        on_news: Callable[[], None] = lambda: None,
        backup: Callable[[], Optional[Body]] = lambda: None,
        on_trial: Optional[OnTrial] = None,
        newest_round: Callable[[], Tuple[int, str]] = lambda: (0, ""),
    ) -> None:
        self.settings = settings
        others = (task for task in settings.tasks if task != settings.chief)
        self.reports = {task: Report(time.monotonic(), "", "") for task in others}
        self.paces: Dict[str, Optional[Pace]] = {}
        self.ended: Optional[Body] = None
        self.checkpoint: Optional[Body] = None
        self.outputs: Optional[Body] = None
        self.turn, self.priority = WAIT, 0
        self._own_sources: Set[str] = set()
        self._lists: Optional[Body] = None  # None: they have changed
        self._changing = threading.Lock()
        self._progress_count = progress_count
        self._on_news = on_news
        self._backup = backup
        self._on_trial = on_trial
        self._newest_round = newest_round
        self._read = read
        self._server = ConnectionServer(settings.port, self._answer, TIMEOUT_S)

    @property
    def port(self) -> int:
        return int(self._server.address[1])

    def unfinished_tasks(self) -> List[str]:
        """Return the tasks that have not reported their end."""
        return [task for task, report in self.reports.items() if report.state not in ENDED]

    def set_own_sources(self, addresses: Iterable[str]) -> None:
        """Set the addresses from which this host connects to others."""
        own = set(addresses)
        with self._changing:
            if own != self._own_sources:
                self._own_sources, self._lists = own, None

    def lists(self) -> Body:
        """Return the lists of an answer, `going` and `sources`, and their digest `lists`."""
        with self._changing:
            if self._lists is None:
                sources = self._own_sources.union(*(r.sources for r in self.reports.values()))
                lists = {"going": self.unfinished_tasks(), "sources": sorted(sources)}
                self._lists = {**lists, "lists": _digest(lists)}
            return self._lists

    def decide_turn(self, holds: bool, is_away: bool) -> str:
        """Return what the tasks of a queued run do, GO once all of them hold what they need.

        `holds` says whether the chief does, `is_away` that a host does not answer. GO is final.
        """
        with self._changing:
            if self.turn != GO:
                others = all(each.holds or each.state in ENDED for each in self.reports.values())
                self.turn = ASIDE if is_away else GO if holds and others else WAIT
            return self.turn

    def close(self) -> None:
        self._server.close()

    def _answer(self, connection: DeadlineSocket) -> None:
        line = signing.receive_line(connection)
        secret_of, chief = self.settings.secret_of, self.settings.chief
        sender, nonce, body = signing.verify(secret_of, signing.REQUEST, line)
        question, data = signing.read(signing.Question, body), b""
        if question.state and sender in self.reports and self._store(sender, question):
            self._on_news()
        lists, (number, lost) = self.lists(), self._newest_round()
        answer: Body = {
            "ended": self.ended,
            "checkpoint": self.checkpoint,
            "outputs": self.outputs,
            "lists": lists["lists"],
            "round": number,
            "lost": lost,
            "seen": plain(connection.peer_address()),
        }
        if question.known not in (lists["lists"], None):
            answer.update(lists)
        if question.state == QUEUED:
            with self._changing:
                answer.update(turn=self.turn, priority=self.priority)
        if question.advance:
            answer["advance"] = self._progress_count()
        if question.backup:
            answer["backup"] = self._backup()
        is_newest = sender in self.reports and self.reports[sender].sent == question.asked
        if question.trial and self._on_trial and is_newest:  # no replay of an older one
            answer["trial"] = to_json(self._on_trial(sender, question.trial, question.trials))
        if question.file:
            data = self._read(question.file, question.offset)
            answer = signing.describe_data(answer, data)
        secret = secret_of(sender)
        connection.send(signing.sign(secret, signing.ANSWER, chief, nonce, answer) + data)

    def _store(self, task: str, question: signing.Question) -> bool:
        """Store a report, unless it is a replay of an older one. Return whether it has changed."""
        report = Report(
            time.monotonic(),
            question.state,
            signing.text(question.reason),
            question.asked,
            signing.few(question.sources),
            question.of_run,
            question.silent,
            signing.text(question.cause),
            question.restarts,
            question.lost_round,
            question.holds,
            question.idle_s,
        )
        with self._changing:
            last = self.reports[task]
            if report.sent <= last.sent:
                return False
            self.reports[task] = report
            self.paces[task] = question.pace
            if replace(report, at=last.at, sent=last.sent, idle_s=last.idle_s) == last:
                return False
            self._lists = None
            return True


class HeartbeatClient:
    """The side of the other tasks: sends reports from its own thread.

    `answer` is the server's last answer, with the lists of an earlier one if they have not changed,
    and `acknowledged` the report that it answers, which has changed at `changed_at`.
    `answered_at` is when it arrived, and `ended_at` when an answer first said that the run has
    ended, on this host's monotonic clock. `refused_s` is for how long the chief's host, which has
    answered before, has refused each connection: nobody listens there any more. A host that is away
    does not refuse. `get_report` returns the body of the current report.
    `on_news` is called after an answer that differs from the one before.
    """

    def __init__(
        self,
        settings: HeartbeatSettings,
        get_report: Callable[[], Body],
        on_news: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self.answer: Body = {}
        self.acknowledged: Body = {}
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
                self.answer = {**self._lists(), **self._request(report)}
            except (OSError, signing.Untrusted) as error:  # the chief may have ended before
                self._count_refusals(isinstance(error, ConnectionRefusedError) and bool(last))
                return False
            self._count_refusals(False)
            self.answered_at = time.monotonic()
            if report != self.acknowledged:
                self.changed_at = self.answered_at
            self.acknowledged = report
            if self.answer.get("ended") and self.ended_at is None:
                self.ended_at = self.answered_at
            if self.answer != last:
                self._on_news()
            return True

    def _count_refusals(self, is_refused: bool) -> None:
        now = time.monotonic()
        since = now if self._refused_at is None else self._refused_at
        self._refused_at = since if is_refused else None
        self.refused_s = now - since if is_refused else 0.0

    def _request(self, report: Body) -> Body:
        known, seen = self.answer.get("lists", ""), self.answer.get("seen", "")
        sources = [*report.get("sources", []), *([seen] if seen else [])]
        body = {**report, "asked": time.monotonic_ns(), "known": known, "sources": sources}
        answer, _ = request(self.settings, body)
        return answer

    def _lists(self) -> Body:
        return {name: self.answer.get(name, []) for name in ("going", "sources")}

    def _send_forever(self) -> None:
        interval_s = max(INTERVAL_S, len(self.settings.tasks) / MAX_REQUESTS_PER_S)
        while True:
            self._wake_up.clear()
            self.send()
            pause_s = interval_s
            if self.acknowledged.get("state") == QUEUED:
                unchanged_s = time.monotonic() - self.changed_at
                pause_s = max(interval_s, min(QUEUED_INTERVAL_S, unchanged_s / 10))
            self._wake_up.wait(pause_s * (0.8 + 0.4 * os.urandom(1)[0] / 255))


def request(
    settings: HeartbeatSettings, body: Body, timeout_s: float = TIMEOUT_S
) -> Tuple[Body, bytes]:
    """Send a request to the chief's supervisor; return the answer's body and data.

    Raises OSError or signing.Untrusted if it does not answer.
    """
    answer, data = signing.request(settings, body, timeout_s)
    signing.read(signing.Answer, answer)
    return answer, data


def fetch_file(settings: HeartbeatSettings, file: str, size: int, target: BinaryIO) -> None:
    """Write the first `size` bytes of a file that the chief's supervisor offers to `target`.

    Raises as `request` does, and ValueError if the file is shorter.
    """
    while target.tell() < size:
        body = {"file": file, "offset": target.tell(), **WITHOUT_LISTS}
        _, data = request(settings, body, PIECE_TIMEOUT_S)
        if not data:
            raise ValueError("{} is shorter than announced".format(file))
        target.write(data)


def _digest(lists: Body) -> str:
    return hashlib.sha256(json.dumps(lists).encode()).hexdigest()
