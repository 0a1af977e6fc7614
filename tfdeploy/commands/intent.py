"""What a push and a start are asked to do, and the callbacks for how it goes."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from tfdeploy.errors import PlanError
from tfdeploy.formatting.short_repr import short_repr
from tfdeploy.planning import frameworks, launch
from tfdeploy.planning.plan import select_hosts
from tfdeploy.planning.roles import RunNames
from tfdeploy.shared.records import NORMAL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from tfdeploy.commands.environments import BuildResult
    from tfdeploy.config.inventory import Inventory
    from tfdeploy.environments.spec import EnvironmentSpec
    from tfdeploy.errors import TfdeployError
    from tfdeploy.hosts.byte_progress import Transfers
    from tfdeploy.planning.plan import Placement, Plan
    from tfdeploy.release.modules import Module
    from tfdeploy.release.snapshot import Release
    from tfdeploy.shared.records import Launch, TaskReport

    Show = Callable[[Sequence[TfdeployError]], None]
    Waiting = Callable[[], AbstractContextManager[Show]]

SET_AT_START = "(set at start)"


@dataclass(frozen=True)
class Queue:
    """How a run waits in the queue of its hosts: this command waits with it for up to `wait_s`
    seconds, or not at all (None). Of several runs, those with the `priority` HIGH come first."""

    wait_s: float | None = None
    priority: str = NORMAL


@dataclass(frozen=True)
class TrialKeys:
    """The keys of [trials] that the command line has; `params` are texts such as "lr=0.1,0.01"."""

    params: tuple[str, ...] = ()
    random: int | None = None
    repeat: int | None = None
    objective: str | None = None
    stop_bad: bool = False


@dataclass(frozen=True)
class RunOptions:
    """What the command line, or a program, says about one run.

    `words` are added to the command, and `variables`, each written NAME=VALUE, to the environment
    of every task. `counts` are other numbers of ps and workers, by their keys in hosts.toml. Only
    the hosts `on` are used ((): all). `name` is the user's name for the run, "" for none. `release`
    is an older release, or a run with it; "" means the source as it is now. With `trials` it is a
    run of trials. Without `queue` it starts at once. `accept_new` is as for Fleet.
    """

    words: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    on: tuple[str, ...] = ()
    share_gpus: bool = False
    name: str = ""
    release: str = ""
    trials: TrialKeys | None = None
    push: bool = False
    queue: Queue | None = None
    accept_new: bool = False


AS_IT_IS = RunOptions()


@dataclass(frozen=True)
class Intent:
    """What `push` and `start` are going to do, as far as it is known without asking a host.

    `data` maps the place of each data set to its release, `environments` each host to its Python
    environment, if hosts.toml has [env]. The files of an older release are only on the hosts: its
    `release` has an id and no files. `has_own_imports` is whether hosts.toml says what `check`
    imports. `placed` says why these hosts were chosen of `all_hosts`, if [training]
    has `workers`.
    """

    __repr__ = short_repr

    inventory: Inventory = field(repr=False)
    plan: Plan
    release: Release
    data: Mapping[str, Release]
    environments: Mapping[str, EnvironmentSpec]
    options: RunOptions = field(default_factory=RunOptions)
    has_own_imports: bool = False
    placed: str = ""
    all_hosts: Inventory | None = field(default=None, repr=False)

    @property
    def reached(self) -> Inventory:
        """Return the hosts that a start may use: all, if it looks again which ones are free."""
        return self.all_hosts or self.inventory

    @property
    def data_ids(self) -> dict[str, str]:
        return {place: release.id for place, release in self.data.items()}

    @property
    def environment_ids(self) -> dict[str, str]:
        return {host: spec.id for host, spec in self.environments.items()}

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the hosts of the inventory, with those that run no task."""
        return tuple(host.name for host in self.inventory.hosts)

    def hosts_on(self, on: Sequence[str]) -> tuple[str, ...]:
        """Return the hosts that these names select; without names, all. Raises PlanError."""
        try:
            return select_hosts(self.hosts, on)
        except PlanError as error:
            if not self.placed:
                raise
            raise PlanError(f"{error.message} among those with tasks", self.placed) from None

    @cached_property
    def modules(self) -> dict[str, Module]:
        """Return the scripts that the commands run, and the user's modules that they import, by
        their paths; none of an older release."""
        from tfdeploy.release import modules

        has = self.release.manifest.__contains__
        scripts = filter(has, frameworks.scripts(self.inventory.training))
        return modules.read(self.release.root, scripts, has)

    def launches(self) -> tuple[Launch, ...]:
        """Return what will be started, except for the run's id, the secrets and the tasks'
        directories."""
        return self._launches(self.plan.placements)

    def examples(self) -> tuple[Launch, ...]:
        """Return the chief's launch, and that of the first task of each other job. The others of a
        job differ in their index, host, port and GPUs, and in what their hosts set: variables, the
        Python and the environment."""
        chief = self.plan.chief
        first = {p.task.job: p for p in reversed(self.plan.placements)}
        return self._launches([*{**first, chief.task.job: chief}.values()])

    def _launches(self, placements: Sequence[Placement]) -> tuple[Launch, ...]:
        names = self.names
        secrets = dict.fromkeys(self.inventory.training.secrets, SET_AT_START)
        launches = launch.make(self.inventory, self.plan, names, SET_AT_START, secrets, placements)
        has_trials = bool(self.inventory.trials.points)
        examples = (each.of_trial(0) if has_trials else each for each in launches)
        return tuple(each.in_directory(SET_AT_START) for each in examples)

    @property
    def names(self) -> RunNames:
        return RunNames(
            SET_AT_START,
            self.release.id,
            self.options.name,
            data=self.data_ids,
            environments=self.environment_ids,
        )

    @property
    def notified(self) -> dict[str, tuple[str, ...]]:
        """Return the commands and URLs of [notify], by their keys."""
        notify = self.inventory.notify
        values = {key: getattr(notify, key) for key in notify.key_names()}
        return {key: value for key, value in values.items() if value is not None}

    def readers(self, place: str) -> list[str]:
        """Return the hosts that get a data set: those of its tasks, and the spare hosts."""
        spares = [host.name for host in self.inventory.hosts if host.spare]
        return [*readers(self.inventory, self.plan, place), *spares]


def readers(inventory: Inventory, plan: Plan, place: str) -> list[str]:
    """Return the hosts whose tasks read a data set."""
    jobs = inventory.data[place].jobs
    return list(dict.fromkeys(p.host for p in plan.placements if p.task.job in jobs))


Outcome = dict[str, dict[str, bool]]
"""The result of `send` for each release, by its id: was it sent to a host, or already there?"""


@dataclass(frozen=True)
class StartWatcher:
    """What a push and a start call while they go on."""

    moving: Callable[[Transfers], AbstractContextManager[object]] = nullcontext
    """Returns a context for the time in which releases are sent, and environments built."""
    on_wait: Callable[[Sequence[str]], None] = lambda waiting: None
    """Takes the hosts that take longer than the others."""
    on_sent: Callable[[Outcome, Intent], None] = lambda outcome, intent: None
    on_built: Callable[[BuildResult, Intent], None] = lambda built, intent: None
    on_notes: Callable[[Sequence[TfdeployError]], None] = lambda notes: None
    """Takes what may matter, and prevents nothing."""
    on_report: Callable[[str, TaskReport], None] = lambda host, report: None
    """Takes a host, and each change of the state of one of its tasks, or of its imports."""
    starting: Callable[[], AbstractContextManager[object]] = nullcontext
    """Returns a context for the time in which tasks start."""
    waiting: Waiting = lambda: nullcontext(lambda conflicts: None)
    """Returns a context for the time in the queue; it yields a function that takes what each task
    waits for, when that changes."""


UNWATCHED = StartWatcher()
