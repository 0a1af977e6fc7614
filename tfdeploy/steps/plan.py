"""`tfdeploy plan`: who would run where, with which command. Nothing is touched."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy import launch, plan, release, run
from tfdeploy.errors import PlanError

if TYPE_CHECKING:
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

    def launches(self) -> tuple[Launch, ...]:
        """What would be started, but for the run's id and secret."""
        return launch.make(self.inventory, self.plan, NOT_YET, self.release.id, NOT_YET)


def plan_all(inventory: Inventory) -> Intent:
    """Place the tasks and read the source tree. Raises PlanError.

    Every host of the intent's inventory has its address, as SSH's configuration gave it now.
    """
    addresses = {host.name: address(host, inventory) for host in inventory.hosts}
    try:
        placed = plan.make(inventory, addresses)
        source = snapshot(inventory)
        launch.check_script(inventory, source.manifest)
        hosts = (h.model_copy(update={"address": addresses[h.name]}) for h in inventory.hosts)
        resolved = inventory.model_copy(update={"hosts": tuple(hosts)})
        intent = Intent(resolved, placed, source)
        intent.launches()  # so that a wrong {field} is found now, not after the push
    except PlanError as error:
        raise PlanError(f"{inventory.file.name}: {error.message}", error.hint) from None
    return intent


def snapshot(inventory: Inventory) -> Release:
    """The source tree as it is now. Raises PlanError."""
    return release.snapshot(inventory.source_root, _excluded(inventory))


def _excluded(inventory: Inventory) -> tuple[str, ...]:
    """What runs brought home is never source, nor what this machine has as one of the hosts,
    wherever they lie in the tree."""
    root = inventory.source_root
    local = (Path(host.directory).expanduser() for host in inventory.hosts if host.is_local)
    ours = (inventory.file.parent.resolve() / run.FOLDER, *(folder.resolve() for folder in local))
    within = (f"/{_literally(f.relative_to(root))}/" for f in ours if f.is_relative_to(root))
    return (*inventory.source.exclude, *within)


def _literally(path: Path) -> str:
    """A path as a pattern of .gitignore that means it and nothing else."""
    return re.sub(r"([\\\[\]*?!# ])", r"\\\1", path.as_posix())


def address(host: Host, inventory: Inventory) -> str:
    """What peers dial: as said, else the name that SSH itself would connect to."""
    if host.address or host.hostname:
        return host.address or host.hostname or ""
    if host.is_local:
        return "127.0.0.1"
    from tfdeploy.transport import openssh

    return openssh.resolve(host, inventory).hostname
