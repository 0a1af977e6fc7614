"""Find the values of hosts.toml that need trust: programs for the controller, and paths outside of
the repository."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.config.cluster import JOBS
from tfdeploy.trust import named_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdeploy.config.inventory import Inventory

ROOT_MARKS = (".git", "pyproject.toml")
PATH_PYTHON = re.compile(r"python[\d.]*")
# Modules that `check` may import on the controller. Any other one may do something when imported.
FRAMEWORKS = ("tensorflow", "jax", "torch")
# Variables that can decide which code a program loads; `check` imports modules with the tasks' env.
# Libraries have many, so these are parts of names.
LOADS_CODE = re.compile(
    r"^LD_|^(BASH_)?ENV$|PATH|HOME|PRELOAD|INJECT|MODULE|ENGINE|CONF|TOOL|PLUGIN|LIB|STARTUP|HOOK"
    r"|SHELL|COMMAND|FLAGS|OPTIONS|TUNABLES"
    r"|^PYTHON(?!UNBUFFERED$|HASHSEED$|IOENCODING$|UTF8$|DONTWRITEBYTECODE$)"
)
DEFAULT_DIRECTORY = "~/.tfdeploy"
RUNS = "runs"  # where everything about runs is written


@dataclass(frozen=True)
class SensitiveValue:
    """A value of hosts.toml that needs trust. `reason` says why; `content` is the digest of the
    files that it names, "" if only the path matters."""

    key: str
    value: str
    reason: str
    content: str = ""

    def __str__(self) -> str:
        return f"{self.key} = {json.dumps(self.value, ensure_ascii=False)} {self.reason}"


def find(inventory: Inventory) -> tuple[SensitiveValue, ...]:
    """Return the values that need trust, in the order of hosts.toml."""
    link = runs_link(inventory.file.parent)
    values = (*_ssh_config(inventory), *_paths(inventory), *_local_programs(inventory))
    return (*values, link) if link else values


def runs_link(project: Path) -> SensitiveValue | None:
    """Return the link in place of a project's folder runs/, if it is one."""
    link = project / RUNS
    target = os.path.realpath(link)  # Path.resolve raises for a link to itself
    reason = "is where the link runs leads, and where results are written and deleted"
    return SensitiveValue(RUNS, target, reason) if link.is_symlink() else None


def repository(inventory: Inventory) -> Path:
    """Return the folder that came with the hosts.toml: the repository around it, else its own
    folder. A home directory is no repository, even if it is in git."""
    own = inventory.file.parent.resolve()
    home = Path.home().resolve()
    inside = [folder for folder in (own, *own.parents) if not home.is_relative_to(folder)]
    marked = (folder for mark in ROOT_MARKS for folder in inside if (folder / mark).exists())
    return next(marked, own)


def _ssh_config(inventory: Inventory) -> Iterator[SensitiveValue]:
    if inventory.ssh_config:
        from tfdeploy.trust import ssh_keywords

        found = ssh_keywords.read(inventory.absolute(inventory.ssh_config), repository(inventory))
        if found.keywords:
            reason = f"has {', '.join(found.keywords)}"
            yield SensitiveValue("ssh_config", inventory.ssh_config, reason, found.digest)


def _paths(inventory: Inventory) -> Iterator[SensitiveValue]:
    root = repository(inventory)
    for key, value, resolved in _named_paths(inventory):
        if not resolved.is_relative_to(root):
            digest = hashlib.sha256(str(resolved).encode(errors="surrogateescape")).hexdigest()
            yield SensitiveValue(key, value, f"is outside of {root}", digest)


def _named_paths(inventory: Inventory) -> Iterator[tuple[str, str, Path]]:
    """Yield the key, the value and the resolved path of all that is read and sent to hosts."""
    yield "source.path", inventory.source.path, inventory.source_root
    if inventory.env:
        from tfdeploy.environments import requirements

        for file in requirements.files(inventory):
            yield "env.requirements", str(file), file.resolve()
    for place, data in inventory.data.items():
        yield f'data."{place}".path', data.path or place, inventory.data_root(place).resolve()


def _local_programs(inventory: Inventory) -> Iterator[SensitiveValue]:
    """Yield what a host with transport = "local" runs on the controller: another program than
    python, an agent that is already in its directory, modules that `check` imports, and variables
    that make it load other code.
    """
    root = repository(inventory)
    if any(host.is_local for host in inventory.hosts):
        for module in sorted({*inventory.training.imports} - {*FRAMEWORKS}):
            reason = "is imported on the controller"
            yield SensitiveValue("training.imports", module, reason)
    for host in (host for host in inventory.hosts if host.is_local):
        if not PATH_PYTHON.fullmatch(host.python):
            key = f"hosts.{host.name}.python"
            content = named_files.digest(host.python, root)
            yield SensitiveValue(key, host.python, "runs on the controller", content)
        if not _expand(host.root).is_relative_to(_expand(DEFAULT_DIRECTORY)):
            key = f"hosts.{host.name}.directory"
            yield SensitiveValue(key, host.directory, "can contain programs that it runs")
        tables = {f"hosts.{host.name}.env": host.env, **_task_variables(inventory)}
        for table, variables in tables.items():
            for name in filter(LOADS_CODE.search, variables):
                reason = "can change which code runs on the controller"
                content = named_files.digest(variables[name], root)
                yield SensitiveValue(f"{table}.{name}", variables[name], reason, content)


def _expand(directory: str) -> Path:
    return Path(directory).expanduser().resolve()


def _task_variables(inventory: Inventory) -> dict[str, dict[str, str]]:
    """Return the tables of [training] that have variables, by their paths in hosts.toml."""
    training = inventory.training
    own = {f"training.{job}": getattr(training, job) for job in JOBS}
    return {
        f"{table}.{key}": getattr(settings, key)
        for table, settings in {"training": training, **own}.items()
        for key in ("env", "role_env")
    }
