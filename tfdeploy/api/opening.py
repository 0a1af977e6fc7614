"""Open what a command is about: hosts.toml, a run by its record, its hosts. What the user has not
trusted is refused, unless somebody can be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy import run as runs
from tfdeploy.config.hosts_file import hosts_flag
from tfdeploy.errors import NewerRun, NotTrusted
from tfdeploy.formatting.humanize import shorten_names
from tfdeploy.trust import store

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tfdeploy.commands.following.recover_record import RecoveredRun
    from tfdeploy.commands.plan import Intent
    from tfdeploy.config.models import Inventory
    from tfdeploy.errors import OutdatedRecord
    from tfdeploy.hosts.fleet import Fleet


class Questions:
    """What only a person can answer, and what a person wants to know. This one is a program's:
    nobody can be asked, so each question is an error."""

    def trust(self, inventory: Inventory, error: NotTrusted) -> None:
        """Return if the user trusts the inventory now."""
        raise error

    def on_record(self, text: str) -> None:
        """Take a sentence about a record of a run that its hosts had."""


NOBODY = Questions()


def load_inventory(file: Path, questions: Questions = NOBODY) -> Inventory:
    """Load a hosts.toml that the user trusts. Raises InventoryError and NotTrusted."""
    from tfdeploy.config import inventory as inventories

    inventory = inventories.load(file)
    require_trust(inventory, str(file), hosts_flag(file), questions)
    return inventory


def plan(
    inventory: Inventory,
    words: Sequence[str] = (),
    variables: Sequence[str] = (),
    counts: Mapping[str, int] | None = None,
    name: str = "",
    release: str = "",
    *,
    accept_new: bool = False,
) -> Intent:
    """Plan what hosts.toml says, with what is changed for one run: words for the program, variables
    as NAME=VALUE, numbers of tasks, a name, an older release. With place = "free", ask the hosts
    which GPUs are free; `accept_new` is as for Fleet. Raises InventoryError, PlanError and
    RunError."""
    from tfdeploy.commands.plan import RunOptions, plan_all
    from tfdeploy.config.overrides import check_run_name, override

    options = RunOptions(
        check_run_name(name) if name else "",
        tuple(words),
        counts or {},
        runs.release_id(inventory.file, release) if release else None,
    )
    overridden = override(inventory, options.words, variables)
    if variables:  # who sets them trusts them, also in the record of the run
        store.remember(overridden)
    training = overridden.training
    if not training.place and training.workers is None:
        return plan_all(overridden, options)
    from tfdeploy.commands.free_hosts import plan_on_free
    from tfdeploy.hosts.fleet import Fleet

    with Fleet(overridden, accept_new=accept_new) as fleet:
        return plan_on_free(fleet, overridden, options)


def find_run(hosts_file: Path, run_id: str | None, questions: Questions = NOBODY) -> runs.Run:
    """Return a run from its record on the controller, or else from a copy on its hosts.

    A name means the newest run that has it. Raises RunError, InventoryError and NotTrusted.
    """
    try:
        found = runs.load(hosts_file, run_id)
    except runs.NoRecord as missing:
        from tfdeploy.commands.following.recover_record import recover_record

        recovered = recover_record(load_inventory(hosts_file, questions), missing.run, missing)
        found = recovered.run
        questions.on_record(_restored(recovered))
    require_trust(found.inventory, f"the record of run {found.id}", found.flags, questions)
    return found


def take_newer_record(outdated: OutdatedRecord, questions: Questions = NOBODY) -> None:
    """Take the newer record that the run's hosts have. Raises as `find_run` does."""
    from tfdeploy.commands.following import recover_record

    recovered = recover_record.take_newer_record(
        outdated, lambda file: load_inventory(file, questions)
    )
    if isinstance(outdated, NewerRun) and recovered:
        questions.on_record(_restored(recovered))
    elif recovered:
        text = f"run {recovered.run.id} was resumed or scaled elsewhere: took its record from "
        questions.on_record(text + shorten_names(recovered.hosts))


def _restored(recovered: RecoveredRun) -> str:
    source = shorten_names(recovered.hosts)
    return f"run {recovered.run.id} had no record on the controller: restored it from {source}"


def open_fleet(run: runs.Run, cancel: threading.Event | None = None) -> Fleet:
    """Return the hosts of a run. They use the version of the agent that started it."""
    from tfdeploy.hosts.fleet import Fleet

    return Fleet(run.inventory, version=run.agent, record=run, cancel=cancel)


def require_trust(
    inventory: Inventory, name: str, flags: str, questions: Questions = NOBODY
) -> None:
    """Raise NotTrusted, with the command to type, if an inventory needs the user's trust and does
    not get it. `name` says what it is, `flags` name it on the command line."""
    try:
        store.refuse_untrusted(inventory, name, flags)
    except NotTrusted as error:
        questions.trust(inventory, error)


def refuse_untrusted(inventory: Inventory) -> None:
    """Raise NotTrusted, with the command to type, if an inventory needs the user's trust."""
    file = inventory.file
    store.refuse_untrusted(inventory, file.name, hosts_flag(file))
