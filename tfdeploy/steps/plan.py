"""`tfdeploy plan`: who would run where, with which command. Nothing is touched."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy import launch, plan, release, run
from tfdeploy.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfdeploy.agent.records import Launch
    from tfdeploy.inventory import Host, Inventory
    from tfdeploy.plan import Plan
    from tfdeploy.release import Release

NOT_YET = "(set at start)"


@dataclass(frozen=True)
class Intent:
    """All that is known before the first connection: what `push` and `start` are going to do.
    `data` has the release of each data set by its place."""

    inventory: Inventory
    plan: Plan
    release: Release
    data: Mapping[str, Release]

    @property
    def data_ids(self) -> dict[str, str]:
        return {place: each.id for place, each in self.data.items()}

    def launches(self) -> tuple[Launch, ...]:
        """What would be started, but for the run's id and secret."""
        named = (NOT_YET, self.release.id, NOT_YET, self.data_ids)
        return launch.make(self.inventory, self.plan, *named)

    def readers(self, place: str) -> list[str]:
        """The hosts that a data set goes to: those of its tasks, and any that may take over."""
        spares = [host.name for host in self.inventory.hosts if host.spare]
        return [*readers(self.inventory, self.plan, place), *spares]


def plan_all(inventory: Inventory) -> Intent:
    """Place the tasks and read the source tree. Raises PlanError.

    Every host of the intent's inventory has its address, as SSH's configuration gave it now.
    """
    addresses = _addresses(inventory)
    try:
        placed = plan.make(inventory, addresses)
        source = snapshot(inventory)
        launch.check_script(inventory, source.manifest)
        launch.check_files(inventory, source.manifest)
        launch.check_chief(inventory.training, placed)
        launch.check_data(inventory, placed, source.manifest)
        data = {place: data_set(inventory, place) for place in inventory.data}
        hosts = (h.model_copy(update={"address": addresses[h.name]}) for h in inventory.hosts)
        resolved = inventory.model_copy(update={"hosts": tuple(hosts)})
        intent = Intent(resolved, placed, source, data)
        intent.launches()  # so that a wrong {field} is found now, not after the push
    except PlanError as error:
        raise PlanError(f"{inventory.file.name}: {error.message}", error.hint) from None
    return intent


def snapshot(inventory: Inventory) -> Release:
    """The source tree as it is now. Raises PlanError."""
    return release.snapshot(inventory.source_root, _excluded(inventory))


def data_set(inventory: Inventory, place: str) -> Release:
    """A data set as it is now. Raises PlanError."""
    root, what = inventory.data_root(place).resolve(), inventory.data[place]
    return release.data_set(place, root, what.exclude, what.compare)


def readers(inventory: Inventory, plan: Plan, place: str) -> list[str]:
    """The hosts whose tasks see a data set."""
    jobs = inventory.data[place].jobs
    return list(dict.fromkeys(p.host for p in plan.placements if p.task.job in jobs))


def _excluded(inventory: Inventory) -> tuple[str, ...]:
    """What runs brought home is never source, nor what this machine has as one of the hosts, nor
    the data sets, wherever they lie in the tree."""
    root = inventory.source_root
    local = (Path(host.root).expanduser() for host in inventory.hosts if host.is_local)
    ours = (inventory.file.parent.resolve() / run.FOLDER, *(folder.resolve() for folder in local))
    within = (f"/{_literally(f.relative_to(root))}/" for f in ours if f.is_relative_to(root))
    data = (f"/{_literally(path)}" for path in _data_within(inventory))
    return (*inventory.source.exclude, *within, *data)


def _data_within(inventory: Inventory) -> Iterator[Path]:
    """Where data sets lie below the source, be it by a link: then the link is no source either."""
    root = inventory.source_root
    for place in inventory.data:
        named = inventory.data_root(place)
        for each in {Path(os.path.normpath(named)), named.resolve()}:
            if each != root and each.is_relative_to(root):
                yield each.relative_to(root)


def _literally(path: Path) -> str:
    """A path as a pattern of .gitignore that means it and nothing else."""
    return re.sub(r"([\\\[\]*?!# ])", r"\\\1", path.as_posix())


def _addresses(inventory: Inventory) -> dict[str, str]:
    """Each host's; several are found at once, for ssh may have to be asked."""
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda host: address(host, inventory), inventory.hosts)
        return dict(zip((host.name for host in inventory.hosts), found, strict=True))


def address(host: Host, inventory: Inventory) -> str:
    """What peers dial: as said, else the name that SSH itself would connect to."""
    if host.address or host.hostname:
        return host.address or host.hostname or ""
    if host.is_local:
        return "127.0.0.1"
    from tfdeploy.transport import openssh

    return openssh.resolve(host, inventory).hostname
