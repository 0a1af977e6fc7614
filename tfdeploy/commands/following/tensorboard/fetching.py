"""Fetch the events of one run in a thread, as its tasks write them, into copies that only grow, as
TensorBoard reads them.

runs/<run>/tensorboard/<task>/…    as below the task's checkpoint directory, or its own directory;
runs/<run>/tensorboard/trials/…    of all slots, because any of them may have run a trial
"""

from __future__ import annotations

import math
import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Self

from tfdeploy.commands.watch import started_again
from tfdeploy.errors import Cancelled, HostError, RunError, TfdeployError, TransferFailed
from tfdeploy.hosts.events import Listener, may_return
from tfdeploy.hosts.fleet import Fleet
from tfdeploy.hosts.pipeline import RoundPart, run_parts
from tfdeploy.results import events_and_logs
from tfdeploy.results.run_folder import disk_errors
from tfdeploy.shared.event_records import EVENTS
from tfdeploy.shared.protocol.reports import NewEvents, StateChange
from tfdeploy.shared.records import ENDED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from tfdeploy.folders.own_folder import OwnFolder
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.pipeline import Pipeline, Steps
    from tfdeploy.run import Run
    from tfdeploy.shared.protocol.reports import RunEvent
    from tfdeploy.shared.records import TaskReport

FOLDER, TRIALS = "tensorboard", "trials"
FREE_BYTES = 256 << 20  # that stay free on the controller's disk
LOCK = ".tensorboard"
LOCK_RETRY_S = 2.0
RECORD_S = 2.0  # how often the run's record is read
AFTER_START_S = (5.0, 15.0, 60.0)
END_S = 5.0


class EventFetcher(Listener):
    """The events of a run, and the thread that fetches them; with `offline` it asks no host.

    Once `reports` is true, `on_away` and `on_back` are called, from any thread, with the error of a
    host that is lost, and with one that answers again. `fetched_elsewhere`: another command
    fetches them; this one takes over when it ends. When the run was started again, `reload` gives
    its new plan.
    """

    def __init__(
        self,
        run: Run,
        on_away: Callable[[TfdeployError], None],
        on_back: Callable[[str], None],
        reload: Callable[[Run], Run],
        *,
        offline: bool,
    ) -> None:
        self.run = run
        self.copies = EventCopies(run)
        self.reports = False
        self.fetched_elsewhere = False
        self.looked = threading.Event()  # at every task, or its host gave an error
        self._on_away, self._on_back = on_away, on_back
        self._reload, self._offline = reload, offline
        self._lock = threading.Lock()
        self._errors: dict[str, TfdeployError] = {}
        self._waiting = {str(placement.task) for placement in run.plan.placements}
        self._active: set[str] = set()  # tasks that have not ended
        self._live = set() if offline else set(run.plan.hosts)  # their tasks have not all ended
        self._ask_again_at = [math.inf]  # of time.monotonic(), ascending
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._thread.join(END_S)

    def end(self) -> None:
        """Make the thread end; leaving the context waits for it."""
        self._closed.set()

    @property
    def errors(self) -> dict[str, TfdeployError]:
        """Return the errors of the hosts that do not answer now, or whose events are refused."""
        with self._lock:
            return dict(self._errors)

    @property
    def is_live(self) -> bool:
        """Return whether a host that answers may still send events."""
        with self._lock:
            return bool(self._live - self._errors.keys())

    def _work(self) -> None:
        try:
            while not self._closed.is_set():
                with suppress(_Busy):
                    self._fetch_alone()
                    if self._offline:
                        return
                    self.looked.set()
                    self._wait_for_start()
                    continue
                self.fetched_elsewhere = True
                self.looked.set()
                self._closed.wait(LOCK_RETRY_S)
        except Cancelled:
            return
        except TfdeployError as error:
            self._fail("", error)
            with self._lock:
                self._live.clear()
        finally:
            self.looked.set()

    def _fetch_alone(self) -> None:
        """Fetch until all tasks have ended, or the hosts must be asked again. Raises _Busy if
        another command does, and Cancelled."""
        busy = _Busy(f"the events of {self.run.id} are fetched")
        with self.run.open().locked(LOCK, busy):
            self.fetched_elsewhere = False
            try:
                self._follow_record()
                self.copies.prepare()
            except OSError as error:
                message = f"{error.filename or self.copies.folder} can't be used"
                raise RunError(f"{message}: {error.strerror}") from None
            if not self._offline:
                self._fetch()

    def _follow_record(self) -> None:
        """Take the plan of the run's last start."""
        if not started_again(self.run):
            return
        self.run = self._reload(self.run)
        self.copies.follow(self.run)
        hosts = set(self.run.plan.hosts)
        with self._lock:
            self._live = hosts
            self._errors = {host: e for host, e in self._errors.items() if host in hosts}
        # Until its tasks are started, a host reports that those of the start before have ended.
        self._ask_again_at = [*(time.monotonic() + s for s in AFTER_START_S), math.inf]

    def _fetch(self) -> None:
        now = time.monotonic()
        self._ask_again_at = [due for due in self._ask_again_at if due > now]
        self._active = {str(placement.task) for placement in self.run.plan.placements}
        placements, update = self.run.plan.placements, self.copies.update
        with (
            Fleet(self.run.inventory, version=self.run.agent, cancel=self._closed) as fleet,
            fleet.follow(self.run, placements, chief="", events=True, on_event=update) as following,
        ):
            while following.is_active and not self._must_ask_again():
                for host, event in following.events(time.monotonic() + RECORD_S):
                    self.dispatch(host, event)
            if not following.is_active:
                with self._lock:
                    self._live.clear()

    def on_error(self, error: HostError) -> None:
        self._fail(error.host, error)

    def on_back(self, host: str) -> None:
        with self._lock:
            self._errors.pop(host, None)
        self._on_back(host)

    def on_state(self, host: str, report: TaskReport) -> None:
        """Take a state; it comes after what the task has written."""
        if report.state in ENDED:
            self._active.discard(report.task)
            with self._lock:
                if not any(str(p.task) in self._active for p in self.run.plan.placements_on(host)):
                    self._live.discard(host)
        self._have_looked({report.task})

    def _wait_for_start(self) -> None:
        while not self._must_ask_again() and not self._closed.wait(RECORD_S):
            pass

    def _must_ask_again(self) -> bool:
        """Return whether the run was started again, or it is time to try what failed before."""
        return time.monotonic() >= self._ask_again_at[0] or started_again(self.run)

    def _fail(self, host: str, error: TfdeployError) -> None:
        with self._lock:
            before = self._errors.get(host)
            self._errors[host] = error
        if self.reports and not self._closed.is_set() and type(before) is not type(error):
            self._on_away(error)
        self._have_looked({str(p.task) for p in self.run.plan.placements_on(host)})

    def _have_looked(self, tasks: set[str]) -> None:
        self._waiting -= tasks
        if not self._waiting:
            self.looked.set()


class _Busy(RunError):
    """Another command fetches the events of this run."""


def shown_until(error: TfdeployError) -> str:
    """Return until when only what was fetched before is shown; "" if that does not end."""
    if isinstance(error, TransferFailed):
        return " until more can be written"
    return " until it answers" if may_return(error) else ""


# The copies


class EventCopies:
    """The copies of one run. Of two threads, each writes the files of other tasks."""

    def __init__(self, run: Run) -> None:
        self._own = run.open() / FOLDER
        self._tasks: dict[str, str] = {}
        self.follow(run)

    def follow(self, run: Run) -> None:
        """Take the tasks of the run's newest plan; those of its earlier ones stay."""
        self._run = run
        self._placements = {str(p.task): p for p in run.plan.placements}
        self._tasks |= {
            task: "" if run.inventory.trials.points else p.task.file_name
            for task, p in self._placements.items()
        }

    @property
    def folder(self) -> Path:
        return self._own.path

    def prepare(self) -> None:
        """Take over what `collect` has fetched. TensorBoard reads the folder: what is no regular
        file is deleted. Raises OSError."""
        self._own.clean(lambda name: True)
        self._take_collected()

    def counts(self) -> dict[str, tuple[int, int]]:
        """Return the number of files and bytes of each task that has any; of trials together."""
        folders = {task if name else TRIALS: name for task, name in self._tasks.items()}
        files = {task: _event_files(self._below(name)) for task, name in folders.items()}
        return {task: (len(own), sum(own.values())) for task, own in files.items() if own}

    def update(self, agent: Agent, event: RunEvent) -> None:
        """Fetch the event files that a host says have changed; of an agent that is too old to say
        so those of a task whose state has changed.

        Raises as `fetch_events` does, and TransferFailed if the disk is almost full.
        """
        if isinstance(event, NewEvents):
            self._fetch(
                agent, event.of, partial(events_and_logs.fetch_event_files, folders=event.events)
            )
        elif isinstance(event, StateChange) and not agent.is_current:
            task = event.state.task
            every = partial(events_and_logs.fetch_all_events, run=self._run)
            self._fetch(agent, task, partial(every, placement=self._placements[task]))

    def _fetch(self, agent: Agent, task: str, fetch: Callable[..., Steps[Any]]) -> None:
        dest = self._below(self._tasks[task])

        def into_copies(pipeline: Pipeline) -> Steps[Any]:
            return fetch(pipeline, dest=dest)

        with disk_errors(agent):
            self._check_disk(agent.host)
            run_parts(agent, [RoundPart(into_copies)])

    def _below(self, name: str) -> OwnFolder:
        return self._own / name if name else self._own

    def _check_disk(self, host: str) -> None:
        self._own.make()
        free = self._own.free_bytes()
        if free < FREE_BYTES:
            raise TransferFailed(
                host,
                f"only {free >> 20} MB are free on the disk of {self.folder}",
                "free disk space on the controller",
            )

    def _take_collected(self) -> None:
        """Copy the chief's and the evaluators' files that `collect` fetched, if more of them."""
        collected = self._run.open() / "events"
        chief = self._tasks[str(self._run.plan.chief.task)]
        evaluators = {name for name in self._tasks.values() if name.startswith("evaluator-")}
        for source, size in _event_files(collected).items():
            of_evaluator = source.partition("/")[0] in evaluators
            copy = source if of_evaluator or not chief else f"{chief}/{source}"
            if size > self._own.size(copy):
                self._own.write(copy, collected.head(source, size))


def _event_files(folder: OwnFolder) -> dict[str, int]:
    """Return the size of each regular event file below a folder, by its path there."""
    found = sorted(folder.files().items())
    return {path: info.st_size for path, info in found if EVENTS in path.rpartition("/")[2]}
