"""A supervisor's membership in its run: what it reports to others, and what it must do for them."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from functools import partial
from typing import Callable, Dict, List, Optional, Tuple, Union

from ...shared import filesystem
from ...shared.protocol.record import replace
from ...shared.records import (
    BACKOFF,
    ENDED,
    FAILED,
    QUEUED,
    READY,
    RUNNING,
    SERVER,
    SUCCEEDED,
    Launch,
    Pace,
    TaskState,
    is_trainer,
)
from ...shared.trials import TrialOrder, TrialRecord
from .. import paths
from ..reports.history import IdleGpus
from . import restart, termination
from .heartbeat import client, signing
from .heartbeat.client import QUEUED_INTERVAL_S, HeartbeatClient
from .heartbeat.messages import ASIDE, GO, End, Offer, Question, Report
from .heartbeat.server import HeartbeatServer, Observer
from .replication import replicas
from .rounds import Rounds
from .run_progress import RunProgress
from .termination import Order
from .trials.board import Board, Journal

GetState = Callable[[], TaskState]
GetSources = Callable[[], List[str]]


TICK_S = 0.25
FIRST_TICK_S = 0.01  # most tasks are stopped together, and `stop` waits for the chief's supervisor
LAST_REPORT_S = 60.0  # for how long a task tries to report its end
NOTIFY_AFTER_S = 60.0  # from when the others should have ended, if one does not report its end
AWAY_S = 60.0  # after such a silence nobody knows whether a task's GPUs are idle
EPISODE_S = 900.0  # a host that was not slow for so long is named again
QUEUE_AWAY_S = 24 * 3600.0  # for how long a queued run waits for a host that does not answer


class Membership:
    """The membership of one task. What only the chief, or only another task, knows or does has here
    the answer of those that do not.

    `get_state` returns the current state of this task, `get_sources` the addresses from which its
    host connects to others.
    """

    def __init__(
        self, launch: Launch, task_dir: str, get_state: GetState, get_sources: GetSources
    ) -> None:
        self._launch, self._task_dir = launch, task_dir
        self._get_state, self._get_sources = get_state, get_sources
        # What watches the task's GPUs, if its run is stopped when they are idle.
        self._idle_gpus: Optional[IdleGpus] = None
        if launch.limits.idle_gpu_stop_s is not None and launch.gpus.indexes:
            self._idle_gpus = IdleGpus(paths.gpu_history(launch.project, launch.run, launch.task))
        # After which silence of a host a queued run lets others pass.
        self._patience_s = max(launch.heartbeat.orphan_timeout_s, 3 * QUEUED_INTERVAL_S)
        self.rounds = Rounds(launch)
        self.begin()

    def begin(self) -> None:
        """Count the age of the run from now."""
        self._started_at, self._started = time.monotonic(), time.time()

    def backup(self, is_restart: bool) -> Optional[Callable[[], None]]:
        """Return a function that fetches the chief's newest checkpoints, if the task needs them
        before its next start."""
        return None

    def state_changed(self) -> None:
        """Report the new state, if others do not ask for it."""

    def all_others_ended(self) -> bool:
        """Return whether every other task has reported its end to this one."""
        return False

    def run_has_ended(self) -> bool:
        """Return whether the chief has ended, as its supervisor says."""
        return False

    def ended_peers(self) -> List[str]:
        """Return the other tasks that train, except the chief, and that have reported their end."""
        return []

    def silent_s(self) -> float:
        """Return for how long the chief's supervisor has not answered."""
        return 0.0

    def end_order(self) -> Optional[Order]:
        """Return the order for a task that waits, if the chief has ended, or if it waits for its
        restart and what it would have to meet has ended."""
        ended = self.ended_peers() if self._launch.trains_in_step else []
        return self._end_waiting(restart.not_alone(ended)) if ended else None

    def _end_waiting(self, why: str) -> Optional[Order]:
        """Return the order for a task that is not restarted; None if it does not wait for that."""
        state = self._get_state()
        if state.state != BACKOFF:
            return None
        return Order(restart.not_restarted(state.reason, why), FAILED)

    def failed_task(self) -> Tuple[str, str]:
        """Return another task that has failed permanently by itself, and why; "" if none has, or if
        this task does not decide what follows."""
        return "", ""

    def close(self) -> None:
        """End what this process does for the run."""

    def _ended_peers(self, unfinished: List[str]) -> List[str]:
        settings = self._launch.heartbeat
        over = (t for t in settings.tasks if t not in (settings.chief, self._launch.task))
        return [task for task in over if is_trainer(task) and task not in unfinished]

    def _limited(self) -> Launch:
        """Return the launch with the limits that hold now: in the queue there are others, and the
        run starts only with all of its tasks."""
        if self._get_state().state != QUEUED:
            return self._launch
        settings = self._launch.heartbeat
        others = [task for task in settings.tasks if task != settings.chief]
        settings = replace(settings, orphan_timeout_s=QUEUE_AWAY_S, needed=others)
        limits = replace(self._launch.limits, max_duration_s=None)
        return replace(self._launch, limits=limits, heartbeat=settings)


class ChiefObserver(Observer):
    """What the heartbeat's server asks the supervisor of the chief."""

    def __init__(self, launch: Launch, task_dir: str, rounds: Rounds) -> None:
        self.offer = replicas.CheckpointOffer(launch, task_dir)
        self.progress = RunProgress(task_dir, launch.directory.checkpoint_dir)
        self.board = Board(launch, Journal(launch)) if launch.trials.points else None
        self._rounds = rounds

    def reported(self) -> None:
        _wake_supervisor()

    def read(self, file: str, offset: int) -> bytes:
        return self.offer.read(file, offset)

    def newest_round(self) -> Tuple[int, str]:
        return self._rounds.newest, self._rounds.lost

    def progress_count(self) -> int:
        return self.progress.count()

    def backup(self) -> Offer:
        return self.offer.offer_backup()

    def trial(self, task: str, question: Question) -> Optional[TrialOrder]:
        if not (self.board and question.trial):
            return None
        return self.board.report(task, question.trial, question.trials)


class ChiefMembership(Membership):
    """Membership of the chief, whose end is the end of the run.

    Its supervisor reports the end to all others, and stays until they have received it.
    """

    def __init__(
        self, launch: Launch, task_dir: str, get_state: GetState, get_sources: GetSources
    ) -> None:
        super().__init__(launch, task_dir, get_state, get_sources)
        self._slow_since: Dict[str, float] = {}
        self._is_notified = not launch.notify.targets("on_end", "on_failure")
        if launch.notify.targets():
            filesystem.remove_file(paths.notice(task_dir))  # of an earlier launch
        self._observer = ChiefObserver(launch, task_dir, self.rounds)
        self._server = HeartbeatServer(launch.heartbeat, self._observer)
        self._observer.offer.start(self._server)

    def turn(self, holds: bool) -> str:
        """Return WAIT, ASIDE or GO; `holds` says whether this task has what it needs."""
        now, reports = time.monotonic(), self._server.reports.values()
        is_away = any(r.state not in ENDED and now - r.at > self._patience_s for r in reports)
        return self._server.decide_turn(holds, is_away)

    def withdraws(self) -> bool:
        """Return whether this task may give back what it holds: the run has not started."""
        return self.turn(holds=False) != GO

    def priority(self, of_launch: str) -> str:
        """Return the run's priority: the one in the launch of this task."""
        self._server.priority = of_launch
        return of_launch

    def sources(self) -> List[str]:
        """Return the addresses of the run's hosts, as far as their supervisors have reported."""
        self._server.set_own_sources(self._get_sources())
        return self._server.lists().sources

    def all_others_ended(self) -> bool:
        return not self._server.unfinished_tasks()

    def ended_peers(self) -> List[str]:
        return self._ended_peers(self._server.unfinished_tasks())

    def exchange(self, trial: TrialRecord, soon: bool = False) -> Optional[TrialOrder]:
        """Report this slot's trial; return which one it has."""
        board = self._observer.board
        return board.report(self._launch.task, trial) if board else None

    def report_pace(self, pace: Optional[Pace]) -> None:
        """Notify of each host that is slow and was not at the last reports of EPISODE_S."""
        if not self._launch.notify.on_slow:
            return
        from ...shared.pace import TaskPace, slow_tasks  # few runs need it
        from ..reports import notify

        reports = self._server.reports.items()
        paces = {task: last.pace for task, last in reports if last.state in (READY, RUNNING)}
        paces[self._launch.task] = pace
        hosts, now = self._launch.notify.hosts, time.monotonic()
        tasks = [TaskPace(task, hosts[task], p) for task, p in paces.items() if p and task in hosts]
        for host, words in slow_tasks(tasks):
            if now - self._slow_since.get(host, -math.inf) > EPISODE_S:
                notify.start_sending_slow(self._launch, self._task_dir, host, words)
            self._slow_since[host] = now

    def failed_task(self) -> Tuple[str, str]:
        for task, last in self._server.reports.items():
            if last.state == FAILED and not last.cause:
                return task, last.reason
        return "", ""

    def order(self) -> Optional[Order]:
        """Return the order for this task, or None while it may continue."""
        now = time.monotonic()
        received = self._server.reports
        reports = {
            task: (self._silent_s(last, now), last.state, last.reason)
            for task, last in received.items()
        }
        age_s = now - self._started_at
        # One that has succeeded would not meet the others again.
        is_whole = all(last.state != SUCCEEDED for last in received.values())
        for task, last in received.items():
            if is_whole:
                self.rounds.note(last.lost_round, task)
            if last.stops_run:
                return termination.reported_stop(task, silent=last.silent)
        return termination.chief_order(self._limited(), reports, age_s, self._idle_s(now))

    def _idle_s(self, now: float) -> float:
        """Return for how long all GPUs of the run have been idle; 0 if it has none."""
        times = [self._idle_gpus.seconds()] if self._idle_gpus else []
        for last in self._server.reports.values():
            if last.state not in ENDED and last.idle_s is not None:
                times.append(last.idle_s if now < last.at + AWAY_S else 0.0)
        return min(times, default=0.0)

    def _silent_s(self, last: Report, now: float) -> float:
        """Return for how long a task has been silent. One in the queue sends few messages, and may
        not know yet that the run has started."""
        silent_s = now - last.at
        is_usual = last.state == QUEUED and silent_s <= self._patience_s
        return 0.0 if is_usual else silent_s

    def progress_count(self) -> Optional[int]:
        """Return how often the run was found to have progressed."""
        return self._observer.progress_count()

    def leave(self, order: Optional[Order]) -> None:
        """Report how this task ended until every other task has reported its own end.

        Gives up orphan_timeout_s after the last message of those that have not, or on SIGTERM. In
        this way other tasks learn the end of the run even if the controller cannot reach their
        hosts. `order` has ended this task.
        """
        state, started_at = self._get_state(), time.monotonic()
        self._is_notified = self._is_notified or (order is not None and order.silent)
        self._server.ended = End(state.state, state.reason)
        linger_s = self._launch.limits.linger_s
        notify_at = math.inf if linger_s is None else started_at + NOTIFY_AFTER_S + linger_s
        while self._is_in_contact(started_at):
            tick_s = min(TICK_S, FIRST_TICK_S + (time.monotonic() - started_at) / 8)
            received = signal.sigtimedwait((signal.SIGTERM, signal.SIGUSR2), tick_s)
            if received and received.si_signo == signal.SIGTERM:
                break
            if received:  # a resume: this is not the run's end
                self._is_notified = True
            if time.monotonic() > notify_at:
                self._notify()

    def _is_in_contact(self, since: float) -> bool:
        """Return whether a task that has not ended has reported `since` then, or not long ago. A ps
        waits for workers, so it counts only when all of them have ended."""
        unfinished = self._server.unfinished_tasks()
        others = [task for task in unfinished if not task.startswith("ps:")] or unfinished
        last = [self._server.reports[task].at for task in others]
        timeout_s = self._launch.heartbeat.orphan_timeout_s
        return bool(last) and time.monotonic() < max(since, *last) + timeout_s

    def close(self) -> None:
        self._notify()
        self._observer.offer.close()
        self._server.close()

    def _notify(self) -> None:
        """Send the summary of the run once, from a process that the run does not wait for."""
        if self._is_notified:
            return
        self._is_notified = True
        try:
            from ..reports import notify  # most runs notify nobody

            states = {task: last.task_state() for task, last in self._server.reports.items()}
            states[self._launch.task] = self._get_state()
            notify.start_sending(self._launch, self._task_dir, states, self._started)
        except Exception as error:  # it must not keep the supervisor from ending
            sys.excepthook(type(error), error, error.__traceback__)


class OtherMembership(Membership):
    """Membership of any task but the chief."""

    def __init__(
        self, launch: Launch, task_dir: str, get_state: GetState, get_sources: GetSources
    ) -> None:
        super().__init__(launch, task_dir, get_state, get_sources)
        self._holds = False
        self._stops_run = self._silent = False
        self._trial: Optional[TrialRecord] = None
        self._pace: Optional[Pace] = None
        self._recorded: List[TrialRecord] = []
        if launch.trials.points and launch.limits.age_s:
            self._recorded = [*Journal(launch).on_this_host()]
        self._client = HeartbeatClient(launch.heartbeat, self._report, _wake_supervisor)
        replicas.start_fetching(launch, self._client)

    def turn(self, holds: bool) -> str:
        """Return WAIT, ASIDE or GO; `holds` says whether this task has what it needs."""
        if holds != self._holds:
            self._holds = holds
            self._client.send_soon()
        return ASIDE if self._is_cut_off() else self._client.answer.turn

    def withdraws(self) -> bool:
        """Return whether this task may give back what it holds: the chief's supervisor knows it,
        and has not started the run."""
        self._holds = False
        if not self._client.send():
            return self._is_cut_off()
        self._holds = self._client.answer.turn == GO
        return not self._holds

    def priority(self, of_launch: str) -> str:
        """Return the run's priority, as the chief's supervisor knows it."""
        priority = self._client.answer.priority
        return of_launch if priority is None else priority

    def _is_cut_off(self) -> bool:
        return time.monotonic() - self._client.answered_at > self._patience_s

    def sources(self) -> List[str]:
        """Return the addresses of the run's hosts, as far as the chief's supervisor knows them."""
        return self._client.answer.sources

    def backup(self, is_restart: bool) -> Optional[Callable[[], None]]:
        """A worker that trains in step with the chief needs its checkpoints."""
        launch = self._launch
        is_synchronous = launch.endpoint.ready == SERVER and launch.trains_in_step
        has_begun = is_restart or launch.limits.age_s > 0
        if not (is_synchronous and has_begun and launch.job == "worker"):
            return None
        from .replication import backups  # most tasks never need it

        return partial(backups.fetch, launch, self._task_dir)

    def state_changed(self) -> None:
        self._client.send_soon()

    def run_has_ended(self) -> bool:
        return self._client.ended_at is not None

    def ended_peers(self) -> List[str]:
        answer = self._client.answer
        return self._ended_peers(answer.unfinished) if answer.lists else []

    def exchange(self, trial: TrialRecord, soon: bool = False) -> Optional[TrialOrder]:
        """Report this slot's trial, at once if `soon`, and with each heartbeat. Return what the
        chief's supervisor has answered to it; None if it has not answered yet."""
        self._trial = trial
        if soon:
            self._client.send()
        sent = self._acknowledged_trial()
        if not sent or _identity(sent) != _identity(trial):
            return None
        return self._client.answer.trial

    def _acknowledged_trial(self) -> Optional[TrialRecord]:
        acknowledged = self._client.acknowledged
        return acknowledged.trial if acknowledged else None

    def report_pace(self, pace: Optional[Pace]) -> None:
        """Report the pace with each heartbeat."""
        self._pace = pace

    def silent_s(self) -> float:
        return time.monotonic() - self._client.answered_at

    def end_order(self) -> Optional[Order]:
        """It is not restarted, however long it might have continued."""
        ended = self._client.answer.ended
        if not ended:
            return super().end_order()
        order = termination.end_order(self._launch.heartbeat.chief, ended)
        if ended.state != SUCCEEDED:
            return order
        # A slot that waits asks for a trial once more, and learns that there is none.
        if self._launch.trials.points:
            return None
        return self._end_waiting("not restarted: " + order.reason) or order

    def order(self) -> Optional[Order]:
        """Return the order for this task, or None while it may continue."""
        now, last = time.monotonic(), self._client
        self.rounds.note(last.answer.round, last.answer.lost)
        ended_s = None if last.ended_at is None else now - last.ended_at
        return termination.other_order(
            self._limited(),
            last.answer,
            now - last.answered_at,
            ended_s,
            now - self._started_at,
            last.refused_s,
        )

    def progress_count(self) -> Optional[int]:
        """Return how often the run was found to have progressed, or None if the chief's supervisor
        does not answer."""
        try:
            question = Question(advance=True, known_lists=None)
            return client.request(self._launch.heartbeat, question)[0].advance
        except (OSError, signing.Untrusted):
            return None

    def leave(self, order: Optional[Order]) -> None:
        """Report how this task ended.

        The report is repeated for LAST_REPORT_S seconds, because networks often fail together with
        tasks, but not to a chief that has ended and left: it may have had the report, and its
        answer was lost. If the whole run is being stopped (`order.stops_run`), the command that
        stops it waits, so the report is sent only once.
        """
        self._trial = self._pace = None
        self._stops_run = stops_run = order is not None and order.stops_run
        self._silent = order is not None and order.silent
        deadline = time.monotonic() + (0.0 if stops_run else LAST_REPORT_S)
        if stops_run:
            self._client.send()
        while self._client.acknowledged != self._report() and time.monotonic() < deadline:
            if self._client.send():
                continue
            has_left = self.run_has_ended() and self._client.is_refused
            if has_left or signal.sigtimedwait((signal.SIGTERM,), 1.0):
                break

    def _report(self) -> Question:
        """Return the current report; the first one is sent while the client is being made."""
        state, trial = self._get_state(), self._trial
        return Question(
            state=state.state,
            reason=state.reason,
            cause=state.cause,
            restarts=state.restarts,
            lost_round=self.rounds.started,
            stops_run=self._stops_run,
            silent=self._stops_run and self._silent,
            sources=self._get_sources(),
            holds=self._holds,
            pace=self._pace,
            idle_s=self._idle_gpus.seconds() if self._idle_gpus else None,
            trial=trial,
            trials=self._recorded if trial and not self._acknowledged_trial() else [],
        )


def _identity(trial: TrialRecord) -> Tuple[int, int, str]:
    return trial.trial, trial.attempt, trial.state


def join(
    launch: Launch, task_dir: str, get_state: GetState, get_sources: GetSources
) -> Union[ChiefMembership, OtherMembership]:
    """Join the run as the chief or another task. Raises OSError if the chief's port is taken."""
    kind = ChiefMembership if launch.is_chief else OtherMembership
    return kind(launch, task_dir, get_state, get_sources)


def _wake_supervisor() -> None:
    """End the main thread's wait in watch.py: what the run does may concern its task.

    A supervisor always handles SIGCHLD as the question whether the task has ended.
    """
    os.kill(os.getpid(), signal.SIGCHLD)
