"""`tfdeploy plan`: who would run where, with which command. Nothing is touched."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy import launch, plan, release, run
from tfdeploy.errors import PlanError

if TYPE_CHECKING:
    from pathlib import Path

    from tfdeploy.agent.records import Launch
    from tfdeploy.inventory import Host, Inventory
    from tfdeploy.plan import Plan
    from tfdeploy.release import Release

NOT_YET = "(set at start)"


@dataclass(frozen=True)
class Intent:
    """All that is known before the first connection: what `push` and `start` are going to do."""

    inventory: Inventory
    plan: Plan
    release: Release

    def launches(self, run: str = NOT_YET) -> tuple[Launch, ...]:
        return launch.make(self.inventory, self.plan, run, self.release.id)


def plan_all(inventory: Inventory) -> Intent:
    """Place the tasks and read the source tree. Raises PlanError."""
    addresses = {host.name: _address(host, inventory) for host in inventory.hosts}
    try:
        placed = plan.make(inventory, addresses)
        snapshot = release.snapshot(inventory.source_root, _excluded(inventory))
        launch.check_script(inventory, snapshot.manifest)
        intent = Intent(inventory, placed, snapshot)
        intent.launches()  # so that a wrong {field} is found now, not after the push
    except PlanError as error:
        raise PlanError(f"{inventory.file.name}: {error.message}", error.hint) from None
    return intent


def _excluded(inventory: Inventory) -> tuple[str, ...]:
    """What runs brought home is never source, wherever hosts.toml lies in the tree."""
    home = inventory.file.parent.resolve() / run.FOLDER
    if not home.is_relative_to(inventory.source_root):
        return inventory.source.exclude
    return (*inventory.source.exclude, f"/{_literally(home.relative_to(inventory.source_root))}/")


def _literally(path: Path) -> str:
    """A path as a pattern of .gitignore that means it and nothing else."""
    return re.sub(r"([\\\[\]*?!# ])", r"\\\1", path.as_posix())


def _address(host: Host, inventory: Inventory) -> str:
    """What peers dial: as said, else the name that SSH itself would connect to."""
    if host.address or host.hostname:
        return host.address or host.hostname or ""
    if host.is_local:
        return "127.0.0.1"
    from tfdeploy.transport import openssh

    return openssh.resolve(host, inventory).hostname
