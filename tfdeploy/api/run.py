"""A run that was started: follow it, ask for its state, fetch its results, end it."""

from __future__ import annotations

import warnings
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, TypeVar

from tfdeploy import run as runs
from tfdeploy.api.opening import find_run, load_inventory, open_fleet, take_newer_record
from tfdeploy.config.hosts_file import find_hosts_file
from tfdeploy.config.overrides import check_words, parse_counts
from tfdeploy.errors import ClaimedRecord, Note, OutdatedRecord

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tfdeploy.commands.collect import CollectResult
    from tfdeploy.commands.fetch import FetchResult
    from tfdeploy.commands.logs import LogLine
    from tfdeploy.commands.resume import Changes, ResumeResult
    from tfdeploy.commands.running.follow import RunEnd, Watcher
    from tfdeploy.commands.running.run import FinishedRun
    from tfdeploy.commands.scale import ScaleResult
    from tfdeploy.commands.status import RunStatus
    from tfdeploy.commands.stop import StopResult
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.shared.records import TaskReport

R = TypeVar("R")
OLD_LINES = 20  # of each log, when a run is followed
NO_COUNTS: Mapping[str, int] = {}


@dataclass(frozen=True)
class Run:
    """A run, by its id and the path of its hosts.toml, which becomes absolute.

    Every method reads the run's record first, so that it knows what another process has changed,
    for example by a resume. All raise RunError if the record cannot be read, and NotTrusted if it
    names what the user has not trusted.
    """

    id: str
    hosts_file: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "hosts_file", Path(self.hosts_file).absolute())

    @classmethod
    def from_id(cls, run_id: str | None = None, hosts: str | Path | None = None) -> Run:
        """Return the run with this id or name, or else the newest one of the hosts file.

        Without `hosts`, that is the hosts.toml of the current folder, or of the nearest one above.
        If the controller has no record of it, its hosts are asked for theirs. Raises RunError if
        there is no such run.
        """
        hosts_file = Path(hosts or find_hosts_file()).absolute()
        return cls(find_run(hosts_file, run_id).id, hosts_file)

    @property
    def record(self) -> runs.Run:
        """Return what was started: the release, the plan, the inventory."""
        return find_run(self.hosts_file, self.id)

    @property
    def folder(self) -> Path:
        """Return the folder of the record, and of everything that is collected."""
        return self.hosts_file.parent / runs.FOLDER / self.id

    def status(self) -> RunStatus:
        """Return the state of every task. Its `errors` are those of hosts that gave no report."""
        from tfdeploy.commands.status import status

        return self._read(status)

    def logs(
        self,
        *tasks: str,
        lines: int | None = None,
        grep: str = "",
        follow: bool = False,
        cancel: threading.Event | None = None,
    ) -> Iterator[LogLine]:
        """Yield the lines of the logs, and with `follow` new ones until all tasks have ended.

        `tasks` are names such as "worker:1", or jobs (none: all tasks). `lines` limits the old
        lines of each task. Hosts select lines that the regular expression `grep` matches ("": all).
        Raises PlanError for an unknown task or an invalid pattern, and at the end the errors of
        hosts that were given up; with `follow`, a host that is lost is asked again until it
        answers.
        """
        from tfdeploy.commands.logs import logs

        record = self.record
        with (
            open_fleet(record, cancel) as fleet,
            closing(logs(fleet, record, tasks, lines=lines, grep=grep, follow=follow)) as logged,
        ):
            for new in logged:
                yield from new.plain()

    def wait(
        self,
        watcher: Watcher | None = None,
        *,
        resilient: bool = False,
        lines: int | None = OLD_LINES,
        cancel: threading.Event | None = None,
    ) -> RunEnd:
        """Follow the run until it ends, and fetch each new checkpoint meanwhile.

        `watcher` has functions to call for what happens; its `on_lines` gets the last `lines` lines
        of each log (None: all), and then new ones. With `resilient`, the run is resumed without
        hosts that are lost. Raises HostError if a host that the run depends on is lost, or the
        chief's host refuses to answer.
        """
        record = self.record
        with open_fleet(record, cancel) as fleet:
            return _follow(fleet, record, watcher, resilient, lines)[1]

    def attach(
        self,
        watcher: Watcher | None = None,
        *,
        resilient: bool = False,
        lines: int | None = OLD_LINES,
        cancel: threading.Event | None = None,
    ) -> FinishedRun:
        """Wait as `wait` does; then stop what is left, and collect.

        The result's `failure` is why the run failed, its `errors` are those of hosts that could not
        be stopped or collected.
        """
        from tfdeploy.commands.running.run import finish

        record = self.record
        with open_fleet(record, cancel) as fleet:
            record, ended = _follow(fleet, record, watcher, resilient, lines)
            return finish(fleet, record, ended)

    def resume(
        self,
        *,
        without: Sequence[str] = (),
        counts: Mapping[str, int] = NO_COUNTS,
        on: Sequence[str] = (),
        on_report: Callable[[str, TaskReport], None] = lambda host, report: None,
        cancel: threading.Event | None = None,
    ) -> ResumeResult:
        """Continue a run that was lost or stopped from its newest checkpoint.

        Hosts in `without` are left out. `counts` are other numbers of tasks, such as
        {"workers": 8}, and `on` are hosts for additional ones. Raises RunError if the run has
        succeeded, or is well and nothing changes; PlanError if the hosts can't run it, and what
        `stop` and `start` raise.
        """
        from tfdeploy.commands.resume import resume

        def act(record: runs.Run) -> ResumeResult:
            changes = self._changes(record, counts, on, without)
            return resume(record, changes, on_report, cancel=cancel)

        return self._with_newest_record(act)

    def scale(
        self,
        counts: Mapping[str, int],
        *,
        on: Sequence[str] = (),
        on_report: Callable[[str, TaskReport], None] = lambda host, report: None,
        cancel: threading.Event | None = None,
    ) -> ScaleResult:
        """Stop a live run, and continue it with other numbers of tasks from its newest checkpoint.

        `counts` and `on` are as for `resume`. Raises RunError if the run is not live.
        """
        from tfdeploy.commands.scale import scale

        def act(record: runs.Run) -> ScaleResult:
            return scale(record, self._changes(record, counts, on), on_report, cancel=cancel)

        return self._with_newest_record(act)

    def collect(self, *, every: bool = False) -> CollectResult:
        """Fetch the newest checkpoint (or `every` one), outputs, events and all logs.

        Raises the errors of all hosts, after everything that can be fetched was.
        """
        from tfdeploy.commands.collect import collect

        return self._read(lambda fleet, record: collect(fleet, record, every=every))

    def fetch(self, task: str, *paths: str | PurePath) -> FetchResult:
        """Fetch files and folders of a task: relative to its directory, or absolute.

        Raises RunError if one does not exist.
        """
        from tfdeploy.commands.fetch import fetch

        names = [str(path) for path in paths]
        return self._read(lambda fleet, record: fetch(fleet, record, task, names))

    def stop(self) -> StopResult:
        """Stop every process of the run. Raises what went wrong: a host that can't be reached, a
        process that survived SIGKILL."""
        from tfdeploy.commands.stop import raise_errors, stop_everywhere

        def stop(fleet: Fleet, record: runs.Run) -> StopResult:
            stopped = stop_everywhere(fleet, record, lambda: load_inventory(self.hosts_file))
            raise_errors(record, stopped)
            return stopped

        try:
            return self._with_newest_record(_with_fleet(stop))
        except ClaimedRecord as claim:  # stop what is known; the error says what may be left
            _with_fleet(stop)(replace(self.record, doubted=claim.doubtful))
            raise

    def _read(self, act: Callable[[Fleet, runs.Run], R]) -> R:
        """Call `act` with the run's hosts and its newest record. One that hosts claim and that is
        not believed is ignored, with a Note, because `act` changes nothing on them."""
        try:
            return self._with_newest_record(_with_fleet(act))
        except ClaimedRecord as claim:
            if not claim.doubtful:
                raise
            warnings.warn(f"not used: {claim.message}", Note, 3)
            return _with_fleet(act)(replace(self.record, doubted=claim.doubtful))

    def _with_newest_record(self, act: Callable[[runs.Run], R]) -> R:
        """Call `act` with the run's record; once more if its hosts have a newer one."""
        try:
            return act(self.record)
        except OutdatedRecord as outdated:
            take_newer_record(outdated)
        return act(self.record)

    def _changes(
        self,
        record: runs.Run,
        counts: Mapping[str, int],
        on: Sequence[str],
        without: Sequence[str] = (),
    ) -> Changes:
        from tfdeploy.commands.resume import Changes
        from tfdeploy.commands.scale import hosts_for

        on, without = check_words("on", on), check_words("without", without)
        chosen = hosts_for(record, on, lambda: load_inventory(self.hosts_file))
        return Changes(without, to_counts(counts), tuple(chosen))


def _with_fleet(act: Callable[[Fleet, runs.Run], R]) -> Callable[[runs.Run], R]:
    """Return a function that calls `act` with the hosts of a run, too."""

    def act_with_fleet(record: runs.Run) -> R:
        with open_fleet(record) as fleet:
            return act(fleet, record)

    return act_with_fleet


def to_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """Return valid numbers of tasks. Raises InventoryError."""
    return parse_counts([f"{key}={count}" for key, count in counts.items()], "counts")


def _follow(
    fleet: Fleet, record: runs.Run, watcher: Watcher | None, resilient: bool, lines: int | None
) -> tuple[runs.Run, RunEnd]:
    """Return the run as it was last resumed, and how it ended."""
    from tfdeploy.commands.running.follow import Watcher
    from tfdeploy.commands.running.run import follow_resiliently, follow_to_end

    if resilient:
        return follow_resiliently(fleet, record, watcher or Watcher(), lines)
    return follow_to_end(fleet, record, watcher or Watcher(), lines)
