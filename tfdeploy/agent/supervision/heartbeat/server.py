"""The side of the chief's supervisor."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from typing import Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

from ....shared.protocol.record import replace
from ....shared.records import ENDED, NORMAL, QUEUED, HeartbeatSettings
from ....shared.trials import TrialOrder
from ...machine.peers import plain
from ...machine.sockets import ConnectionServer, DeadlineSocket
from . import signing
from .messages import ASIDE, GO, WAIT, Answer, End, Offer, Question, Report, without_defaults
from .signing import REQUEST_TIMEOUT_S


class Lists(NamedTuple):
    """The lists of an answer, and their digest."""

    unfinished: List[str]
    sources: List[str]
    digest: str


class Observer:
    """What the server reports to the chief's supervisor, and asks it, from its own threads."""

    def reported(self) -> None:
        """A report differs from the one before."""

    def read(self, file: str, offset: int) -> bytes:
        """Return a piece of an offered file. Raises ValueError for any other file."""
        raise ValueError("{!r} is not offered".format(file))

    def newest_round(self) -> Tuple[int, str]:
        """Return the newest round of rounds.py, and the task whose loss began it."""
        return 0, ""

    def progress_count(self) -> int:
        """Return the count of run_progress.py."""
        return 0

    def backup(self) -> Optional[Offer]:
        """Return the offer of backups.py."""
        return None

    def trial(self, task: str, question: Question) -> Optional[TrialOrder]:
        """Return the order for a slot that reports its trial; None if there are no trials."""
        return None


class HeartbeatServer:
    """The chief's side: answers every task that signs its requests, and stores its reports.

    `ended`, `checkpoint` and `outputs` are part of each answer. Raises OSError if the port is
    taken.
    """

    def __init__(self, settings: HeartbeatSettings, observer: Observer) -> None:
        self.settings = settings
        now = time.monotonic()
        others = (task for task in settings.tasks if task != settings.chief)
        self.reports = {task: Report(at=now, idle_s=0.0) for task in others}
        self._answered: Dict[str, signing.AnsweredOnce] = {}
        self.ended: Optional[End] = None
        self.checkpoint: Optional[Offer] = None
        self.outputs: Optional[Offer] = None
        self.turn, self.priority = WAIT, NORMAL
        self._own_sources: Set[str] = set()
        self._lists: Optional[Lists] = None  # None: they have changed
        self._changing = threading.Lock()
        self._observer = observer
        self._server = ConnectionServer(settings.port, self._answer, REQUEST_TIMEOUT_S)

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

    def lists(self) -> Lists:
        """Return the lists of an answer."""
        with self._changing:
            if self._lists is None:
                sources = self._own_sources.union(*(r.sources for r in self.reports.values()))
                unfinished, known = self.unfinished_tasks(), sorted(sources)
                digest = hashlib.sha256(json.dumps([unfinished, known]).encode()).hexdigest()
                self._lists = Lists(unfinished, known, digest)
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
        question = signing.read(Question, body)
        self._answered.setdefault(sender, signing.AnsweredOnce()).take(nonce, question.sent_ns)
        if question.state and sender in self.reports and self._store(sender, question):
            self._observer.reported()
        answer = self._answer_to(sender, question, plain(connection.peer_address()))
        body, data = without_defaults(answer), b""
        if question.file:
            data = self._observer.read(question.file, question.offset)
            body = signing.describe_data(body, data)
        secret = secret_of(sender)
        connection.send(signing.sign(secret, signing.ANSWER, chief, nonce, body) + data)

    def _answer_to(self, sender: str, question: Question, address: str) -> Answer:
        unfinished, sources, digest = self.lists()
        wants_lists = question.known_lists not in (digest, None)
        number, lost = self._observer.newest_round()
        with self._changing:
            is_queued = question.state == QUEUED
            turn, priority = (self.turn, self.priority) if is_queued else (WAIT, None)
        is_newest = sender in self.reports and self.reports[sender].sent_ns == question.sent_ns
        has_trial = question.trial and is_newest  # none that was overtaken
        return Answer(
            ended=self.ended,
            checkpoint=self.checkpoint,
            outputs=self.outputs,
            lists=digest,
            unfinished=unfinished if wants_lists else [],
            sources=sources if wants_lists else [],
            seen_from=address,
            round=number,
            lost=lost,
            turn=turn,
            priority=priority,
            advance=self._observer.progress_count() if question.advance else 0,
            backup=self._observer.backup() if question.backup else None,
            trial=self._observer.trial(sender, question) if has_trial else None,
        )

    def _store(self, task: str, question: Question) -> bool:
        """Store a report, unless it is a replay of an older one. Return whether it has changed."""
        report = question.report(at=time.monotonic())
        with self._changing:
            last = self.reports[task]
            if report.sent_ns <= last.sent_ns:
                return False
            self.reports[task] = report
            fixed = {
                "at": last.at,
                "sent_ns": last.sent_ns,
                "pace": last.pace,
                "idle_s": last.idle_s,
            }
            if replace(report, **fixed) == last:
                return False
            self._lists = None
            return True
