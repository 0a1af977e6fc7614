"""Trust a hosts.toml as its author has: for tests about something else."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tfdeploy.config import inventory
from tfdeploy.errors import TfdeployError
from tfdeploy.trust import store


def trust(file: Path | str = "hosts.toml") -> None:
    """Trust all values of a hosts.toml, unless it is invalid or missing."""
    with suppress(TfdeployError):
        store.remember(inventory.load(Path(file)))


def trust_hosts(folder: Path) -> None:
    """Trust the hosts of each hosts.toml in a folder and what runs there, unless it has other
    values that need trust."""
    for file in folder.glob("*.toml"):
        with suppress(TfdeployError, OSError):
            loaded = inventory.load(file)
            if not store.untrusted_to_plan(loaded):
                store.remember(loaded)
