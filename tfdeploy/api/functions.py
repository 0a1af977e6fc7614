"""The commands that start from hosts.toml, as functions: from plan to start, runs, prune."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tfdeploy.api import opening
from tfdeploy.api.opening import refuse_untrusted
from tfdeploy.api.run import NO_COUNTS, Run, to_counts
from tfdeploy.commands.intent import RunOptions
from tfdeploy.config import inventory as inventories
from tfdeploy.config import models
from tfdeploy.config.hosts_file import find_hosts_file
from tfdeploy.config.overrides import check_words
from tfdeploy.errors import InventoryError
from tfdeploy.hosts.fleet import Fleet
from tfdeploy.trust import store

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence

    from tfdeploy.commands.check import CheckResult
    from tfdeploy.commands.intent import Intent
    from tfdeploy.commands.prune import PruneResult
    from tfdeploy.commands.runs import ProjectRuns
    from tfdeploy.errors import TfdeployError
    from tfdeploy.shared.records import TaskReport

NOTHING: Mapping[str, str] = {}


class Inventory(models.Inventory):
    """A validated hosts.toml."""

    @classmethod
    def load(cls, file: str | Path | None = None, *, trust: bool = False) -> Self:
        """Read and validate `file`, or else the hosts.toml of the current folder or of the
        nearest one above it.

        Raises InventoryError, and NotTrusted if the file runs or names something that the user has
        not trusted yet. `trust` trusts it from now on, as `tfdeploy trust` does.
        """
        loaded = inventories.load(Path(file or find_hosts_file()))
        if trust:
            store.remember(loaded)
        refuse_untrusted(loaded)
        fields = {name: getattr(loaded, name) for name in models.Inventory.key_names()}
        return cls(given=loaded.given, **fields)


def plan(
    inventory: models.Inventory,
    *,
    words: Sequence[str] = (),
    env: Mapping[str, str] = NOTHING,
    counts: Mapping[str, int] = NO_COUNTS,
    name: str = "",
    release: str = "",
) -> Intent:
    """Return what would be started. No host is contacted, unless [training] has workers.

    `words` are added to training.command, and `env` to the environment of every task. `counts` are
    other numbers of tasks, such as {"workers": 8}. `name` names the run. `release` starts an older
    release: its id, or the id or name of a run with it. Raises InventoryError and PlanError.
    """
    return _plan(inventory, _options(words, env, counts, name, release))


def _options(
    words: Sequence[str],
    env: Mapping[str, str],
    counts: Mapping[str, int],
    name: str,
    release: str,
) -> RunOptions:
    wrong = [variable for variable in env if "=" in variable]
    if wrong:
        raise InventoryError(f'env: found "{wrong[0]}"; expected the name of a variable')
    words = check_words("words", words)
    variables = tuple(f"{key}={value}" for key, value in env.items())
    return RunOptions(words, variables, to_counts(counts), name=name, release=release)


def _plan(inventory: models.Inventory, options: RunOptions) -> Intent:
    refuse_untrusted(inventory)
    return opening.plan(inventory, options)


def check(inventory: models.Inventory, *, accept_new_host_keys: bool = False) -> CheckResult:
    """Find what would make a start fail. Nothing is started.

    The result's `errors` would make it fail, its `notes` may matter. Raises as `plan` does.
    """
    from tfdeploy.commands.check import check

    intent = plan(inventory)
    with Fleet(intent.inventory, accept_new=accept_new_host_keys) as fleet:
        return check(fleet, intent)


def push(
    inventory: models.Inventory,
    *,
    accept_new_host_keys: bool = False,
    cancel: threading.Event | None = None,
) -> dict[str, dict[str, bool]]:
    """Send the source to every host, and each data set to the hosts that may read it.

    Return for each release to which hosts it was sent. Raises as `plan` does, and the errors of all
    hosts.
    """
    from tfdeploy.commands.push import push

    intent = plan(inventory)
    with Fleet(intent.inventory, accept_new=accept_new_host_keys, cancel=cancel) as fleet:
        return push(fleet, intent)


def start(
    inventory: models.Inventory,
    *,
    words: Sequence[str] = (),
    env: Mapping[str, str] = NOTHING,
    counts: Mapping[str, int] = NO_COUNTS,
    name: str = "",
    release: str = "",
    push: bool = False,
    accept_new_host_keys: bool = False,
    on_report: Callable[[str, TaskReport], None] = lambda host, report: None,
    on_note: Callable[[TfdeployError], None] = lambda note: None,
    cancel: threading.Event | None = None,
) -> Run:
    """Start every task and wait until all are READY; with `push` send the releases first.

    `words`, `env`, `counts`, `name` and `release` are as for `plan`. `on_report(host, report)` is
    called when a task's state changes, `on_note(note)` for what may matter. Raises as `plan` does,
    and what went wrong on any host or task, after everything was stopped again.
    """
    from tfdeploy.commands.intent import StartWatcher
    from tfdeploy.commands.start import start_run

    def on_notes(notes: Sequence[TfdeployError]) -> None:
        for note in notes:
            on_note(note)

    watcher = StartWatcher(on_notes=on_notes, on_report=on_report)
    options = _options(words, env, counts, name, release)
    intent = _plan(inventory, replace(options, push=push))
    with Fleet(intent.reached, accept_new=accept_new_host_keys, cancel=cancel) as fleet:
        started = start_run(fleet, intent, watcher)
    return Run(started.run.id, inventory.file)


def runs(inventory: models.Inventory) -> ProjectRuns:
    """Return every run that is stored on the hosts, and its disk space.

    The result's `errors` are those of hosts that gave no answer.
    """
    from tfdeploy.commands.runs import runs

    refuse_untrusted(inventory)
    with Fleet(inventory) as fleet:
        return runs(fleet, inventory)


def prune(inventory: models.Inventory, *, keep: int = 5, yes: bool = False) -> PruneResult:
    """Delete all but the newest runs and releases from the hosts, never a live one.

    Raises RunError if results would be deleted that are not on the controller, unless `yes`. If a
    host does not answer, all runs stay. The
    result's `errors` are those of hosts, and what could not be deleted.
    """
    from tfdeploy.commands import prune as pruning

    stored, project = runs(inventory), inventory.project
    with Fleet(inventory) as fleet:
        chosen = pruning.choose_removals(stored.disks, keep, keep, stored.errors)
        lost = pruning.results_only_on_hosts(stored.disks, chosen)
        loss = pruning.data_loss(lost, inventory.file)
        if loss and not yes:
            raise loss
        pruned = pruning.prune(fleet, project, chosen)
    return replace(pruned, errors=(*stored.errors, *pruned.errors))
