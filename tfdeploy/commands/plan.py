"""`tfdeploy plan`: what would run where, with which command. No host is contacted."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy import run as runs
from tfdeploy.commands.intent import AS_IT_IS, Intent
from tfdeploy.commands.preflight import scripts
from tfdeploy.errors import prefix_plan_errors
from tfdeploy.planning import checks, frameworks, placing, roles
from tfdeploy.planning.plan import select_hosts
from tfdeploy.planning.replanning import describe, with_counts
from tfdeploy.release import by_products, gitignore, snapshot
from tfdeploy.release.snapshot import Release

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdeploy.commands.intent import RunOptions
    from tfdeploy.config.inventory import Host, Inventory, Training
    from tfdeploy.environments.spec import EnvironmentSpec
    from tfdeploy.planning.plan import Plan


def with_hosts(inventory: Inventory, names: Sequence[str]) -> Inventory:
    """Return the inventory with only the named hosts. Raises PlanError."""
    chosen = select_hosts([host.name for host in inventory.hosts], names)
    hosts = tuple(host for host in inventory.hosts if host.name in chosen)
    return inventory.copy_with({"hosts": hosts})


def plan_all(inventory: Inventory, options: RunOptions = AS_IT_IS) -> Intent:
    """Place the tasks on hosts and read the source tree and the data sets. Raises PlanError.

    Every host of the intent's inventory has its address, resolved by SSH's configuration.
    """
    address_of, file = addresses(inventory), inventory.file.name
    if options.counts:
        with prefix_plan_errors(describe(options.counts)):
            inventory = with_counts(inventory, options.counts)
    with prefix_plan_errors(file):
        placed = placing.make_plan(inventory, address_of)
        checks.check_chief(inventory.training, placed)
        checks.check_orphan_timeout(inventory.training, placed)
    if options.words:
        checks.check_words(inventory.training, placed, options.words)
    with prefix_plan_errors(file):
        older = Release(options.release, inventory.source_root, {}, {})
        source = older if options.release else _checked_source(inventory, placed)
        data = {place: data_release(inventory, place) for place in inventory.data}
        hosts = (h.copy_with({"address": address_of[h.name]}) for h in inventory.hosts)
        changed = {"hosts": tuple(hosts), "training": _with_defaults_of_scripts(inventory)}
        resolved = inventory.copy_with(changed)
        environments = _environments(resolved) if resolved.env else {}
    has_own = "imports" in inventory.training.given
    intent = Intent(resolved, placed, source, data, environments, options, has_own)
    # An unknown {field} is found now, not after the push.
    if options.words:
        roles.check_word_fields(resolved, placed, intent.names, options.words)
    with prefix_plan_errors(file):
        intent.examples()
    return intent


def _environments(inventory: Inventory) -> dict[str, EnvironmentSpec]:
    from tfdeploy.environments import spec

    return spec.for_hosts(inventory)


def _checked_source(inventory: Inventory, placed: Plan) -> Release:
    source = source_release(inventory)
    scripts.check_scripts(inventory, source)
    if inventory.training.role_files:
        checks.check_files(inventory, source.manifest)
    if inventory.data:
        checks.check_data(inventory, placed, source.manifest)
    return source


def _with_defaults_of_scripts(inventory: Inventory) -> Training:
    """Return [training] with the `imports` of the scripts that the commands run, as these are now,
    and with the `ends_with` of their workers, unless hosts.toml sets them."""
    training, texts = inventory.training, _script_texts(inventory)
    found = frameworks.imports_in(texts, training)
    imports = training.imports if "imports" in training.given else found
    changed: dict[str, object] = {} if imports == training.imports else {"imports": imports}
    if training.ends_with is None and frameworks.has_waiting_workers(texts):
        changed["ends_with"] = "chief"
    return training.copy_with(changed)


def _script_texts(inventory: Inventory) -> list[str]:
    """Return the texts of the scripts that the commands run, as they are now in the source."""
    root = inventory.source_root
    paths = [(root / script).resolve() for script in frameworks.scripts(inventory.training)]
    scripts = [path for path in paths if path.is_file() and path.is_relative_to(root)]
    return [path.read_text(errors="replace") for path in scripts]


def source_release(inventory: Inventory) -> Release:
    """Return the source tree as it is now, without the hosts file in use and without the files that
    this command writes its output to. Raises PlanError."""
    return snapshot.take(inventory.source_root, _excluded(inventory), _output_files())


def data_release(inventory: Inventory, place: str) -> Release:
    """Return a data set as it is now. Raises PlanError."""
    root, data_set = inventory.data_root(place).resolve(), inventory.data[place]
    return snapshot.take_data_set(place, root, data_set.exclude, data_set.compare)


def address(host: Host, inventory: Inventory) -> str:
    """Return the address at which other hosts reach this one: the key `address`, else the host name
    that SSH connects to."""
    if own := _own_address(host):
        return own
    from tfdeploy.transport.ssh import config

    return config.resolve(host, inventory).hostname


def _own_address(host: Host) -> str:
    """Return the address of a host without SSH's configuration; "" if only that has it."""
    return host.address or host.hostname or ("" if host.uses_ssh else "127.0.0.1")


def addresses(inventory: Inventory) -> dict[str, str]:
    """Return the address of each host. Threads, because each may need a call of `ssh -G`."""
    found = {host.name: _own_address(host) for host in inventory.hosts}
    unknown = [host for host in inventory.hosts if not found[host.name]]
    if unknown:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor() as pool:
            resolved = pool.map(lambda host: address(host, inventory), unknown)
            found.update(zip((host.name for host in unknown), resolved, strict=True))
    return found


def _output_files() -> list[tuple[int, int]]:
    """Return (device, inode) of the files that standard output and standard error go to."""
    found = []
    for descriptor in (1, 2):
        with suppress(OSError):  # it is closed
            info = os.fstat(descriptor)
            found += [(info.st_dev, info.st_ino)] if stat.S_ISREG(info.st_mode) else []
    return found


def _excluded(inventory: Inventory) -> tuple[str, ...]:
    """Return patterns of what is not source: the results of runs, the directories of local hosts,
    the data sets, and the hosts file (no task reads it, and a changed timeout needs no push). A
    notebook that a command runs is source."""
    root = inventory.source_root
    local = (Path(host.root).expanduser() for host in inventory.hosts if host.is_local)
    own = (inventory.file.parent.resolve() / runs.FOLDER, *(folder.resolve() for folder in local))
    folders = (f"{gitignore.literal(f.relative_to(root))}/" for f in own if f.is_relative_to(root))
    data = map(gitignore.literal, _data_in_source(inventory) if inventory.data else ())
    files = {inventory.file, inventory.file.resolve(), *_other_hosts_files(inventory)}
    hosts = (gitignore.literal(f.relative_to(root)) for f in files if f.is_relative_to(root))
    notebooks = (f"!{gitignore.literal(path)}" for path in frameworks.notebooks(inventory.training))
    return (*notebooks, *inventory.source.exclude, *folders, *data, *hosts)


def _other_hosts_files(inventory: Inventory) -> Iterator[Path]:
    """Yield the hosts files of earlier runs, which may have any name."""
    folder = inventory.file.parent.resolve()
    for name in runs.hosts_files(folder / runs.FOLDER):
        if (folder / name).is_file() and by_products.is_hosts_file(folder / name):
            yield folder / name


def _data_in_source(inventory: Inventory) -> Iterator[Path]:
    """Yield the data sets below the source folder, with the symbolic links that lead to them."""
    root = inventory.source_root
    for place in inventory.data:
        configured = inventory.data_root(place)
        for path in {Path(os.path.normpath(configured)), configured.resolve()}:
            if path != root and path.is_relative_to(root):
                yield path.relative_to(root)
