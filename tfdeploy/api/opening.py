"""Open what a command is about: hosts.toml, a run by its record, its hosts. What the user has not
trusted is refused, unless somebody can be asked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tfdeploy import run as runs
from tfdeploy.config.hosts_file import hosts_flag
from tfdeploy.errors import NewerRun, NotTrusted
from tfdeploy.formatting.humanize import shorten_names
from tfdeploy.trust import store

if TYPE_CHECKING:
    import threading
    from pathlib import Path

    from tfdeploy.commands.intent import Intent, RunOptions
    from tfdeploy.commands.records.recover import RecoveredRun
    from tfdeploy.config.models import Inventory
    from tfdeploy.errors import ClaimedRecord, OutdatedRecord
    from tfdeploy.hosts.fleet import Fleet


class Questions:
    """What only a person can answer, and what a person wants to know. This one is a program's:
    nobody can be asked, so each question is an error."""

    def trust(self, inventory: Inventory, error: NotTrusted) -> None:
        """Return if the user trusts the inventory now."""
        raise error

    def on_record(self, text: str) -> None:
        """Take a sentence about a record of a run that its hosts had."""

    def claim(self, claim: ClaimedRecord) -> None:
        """Return if a person agrees to use a record that hosts have, by typing the run's id."""
        raise claim


NO_QUESTIONS = Questions()


def load_inventory(file: Path, questions: Questions = NO_QUESTIONS) -> Inventory:
    """Load a hosts.toml that the user trusts. Raises InventoryError and NotTrusted."""
    from tfdeploy.config import inventory as inventories

    inventory = inventories.load(file)
    require_trust(inventory, str(file), hosts_flag(file), questions)
    return inventory


def load_to_plan(file: Path, questions: Questions = NO_QUESTIONS) -> Inventory:
    """Load a hosts.toml to plan with it: what it runs on hosts may still need the user's trust, but
    not what a plan itself reads. Raises InventoryError and NotTrusted."""
    from tfdeploy.config import inventory as inventories

    inventory = inventories.load(file)
    asks_hosts = inventory.training.workers is not None
    if asks_hosts or store.untrusted_to_plan(inventory):
        require_trust(inventory, str(file), hosts_flag(file), questions)
    return inventory


def plan(inventory: Inventory, options: RunOptions) -> Intent:
    """Plan what hosts.toml says, with what the options change for one run. With `workers` in
    [training], ask the hosts which GPUs are free. Raises InventoryError, PlanError and RunError.
    """
    from tfdeploy.commands.plan import plan_all, with_hosts
    from tfdeploy.config.overrides import check_run_name, override, with_shared_gpus

    if options.on:
        inventory = with_hosts(inventory, options.on)
    if options.share_gpus:
        inventory = with_shared_gpus(inventory)
    if options.trials:
        from tfdeploy.commands.trials import plan_trials

        inventory = plan_trials(inventory, options.trials)
    if options.name:
        check_run_name(options.name)
    if options.release:
        options = replace(options, release=runs.release_id(inventory.file, options.release))
    if options.words or options.variables:
        overridden = override(inventory, options.words, options.variables)
        if not store.untrusted(inventory):
            store.remember(overridden)  # who types them trusts them, also in the record of the run
        inventory = overridden
    if inventory.training.workers is None:
        return plan_all(inventory, options)
    from tfdeploy.commands.free_hosts import plan_on_free
    from tfdeploy.hosts.fleet import Fleet

    with Fleet(inventory, accept_new=options.accept_new) as fleet:
        return plan_on_free(fleet, inventory, options)


def find_run(hosts_file: Path, run_id: str | None, questions: Questions = NO_QUESTIONS) -> runs.Run:
    """Return a run from its record on the controller, or else from a copy on its hosts.

    A name means the newest run that has it. Raises RunError, InventoryError and NotTrusted.
    """
    try:
        found = runs.load(hosts_file, run_id)
    except runs.NoRecord as missing:
        from tfdeploy.commands.records.recover import recover_record

        inventory = load_inventory(hosts_file, questions)
        recovered = recover_record(inventory, missing.run, missing, questions.claim)
        found = recovered.run
        questions.on_record(_restored(recovered))
    require_trust(found.inventory, f"the record of run {found.id}", found.flags, questions)
    return found


def take_newer_record(outdated: OutdatedRecord, questions: Questions = NO_QUESTIONS) -> None:
    """Take the newer record that the run's hosts have. Raises as `find_run` does: ClaimedRecord if
    it is not believed, and nobody agrees."""
    from tfdeploy.commands.records import recover

    recovered = recover.take_newer_record(
        outdated, lambda file: load_inventory(file, questions), questions.claim
    )
    if isinstance(outdated, NewerRun) and recovered:
        questions.on_record(_restored(recovered))
    elif recovered:
        text = f"run {recovered.run.id} was resumed or scaled elsewhere: took its record from "
        questions.on_record(text + shorten_names(recovered.hosts))


def _restored(recovered: RecoveredRun) -> str:
    source = shorten_names(recovered.hosts)
    text = f"run {recovered.run.id} had no record on the controller: restored it from {source}"
    run_id = recovered.older
    return f"{text}; the newest before it: --run {run_id}" if run_id else text


def open_fleet(run: runs.Run, cancel: threading.Event | None = None) -> Fleet:
    """Return the hosts of a run. They use the version of the agent that started it."""
    from tfdeploy.hosts.fleet import Fleet

    return Fleet(run.inventory, version=run.agent, record=run, cancel=cancel)


def require_trust(
    inventory: Inventory, name: str, flags: str, questions: Questions = NO_QUESTIONS
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
