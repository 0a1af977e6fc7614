"""Read hosts.toml and the records of runs, and refuse what the user has not trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy import run as runs
from tfdeploy.commands.preflight.named_runs import resolve_name
from tfdeploy.config import inventory as inventories
from tfdeploy.hosts_file import hosts_flag
from tfdeploy.trust import store

if TYPE_CHECKING:
    from pathlib import Path

    from tfdeploy.config.models import Inventory
    from tfdeploy.errors import OutdatedRecord


def load_inventory(file: Path) -> Inventory:
    """Load a hosts.toml that the user trusts. Raises InventoryError and NotTrusted."""
    inventory = inventories.load(file)
    refuse_untrusted(inventory)
    return inventory


def find_run(hosts_file: Path, run_id: str | None) -> runs.Run:
    """Return a run from its record on the controller, or else from a copy on its hosts.

    Raises RunError, also if several live runs have this name, InventoryError and NotTrusted.
    """
    try:
        found = runs.load(hosts_file, run_id)
    except runs.NoRecord as missing:
        from tfdeploy.commands.following.recover_record import recover_record

        found = recover_record(load_inventory(hosts_file), run_id, missing).run
    _refuse_untrusted_record(found)
    return resolve_name(found, run_id, _refuse_untrusted_record)


def _refuse_untrusted_record(run: runs.Run) -> None:
    store.refuse_untrusted(run.inventory, f"the record of run {run.id}", run.flags)


def take_newer_record(outdated: OutdatedRecord) -> None:
    """Take the newer record that the run's hosts have. Raises as `find_run` does."""
    from tfdeploy.commands.following import recover_record

    recover_record.take_newer_record(outdated, load_inventory)


def refuse_untrusted(inventory: Inventory) -> None:
    """Raise NotTrusted, with the command to type, if an inventory needs the user's trust."""
    file = inventory.file
    store.refuse_untrusted(inventory, file.name, hosts_flag(file))
