"""Find the values of hosts.toml that need trust: what it runs on any machine, and what it reads on
the controller outside of the repository.

How a host is reached makes no difference: a name, an ssh_config or a jump host can lead back to the
controller.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from tfdeploy.config.cluster import JOBS
from tfdeploy.formatting.humanize import mask_urls
from tfdeploy.trust import named_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tfdeploy.config.inventory import Inventory
    from tfdeploy.config.models import Host
    from tfdeploy.trust.ssh_keywords import Found

ROOT_MARKS = (".git", "pyproject.toml")
PATH_PYTHON = re.compile(r"python[\d.]*")
# Modules that `check` may import on a host. Any other one may do something when imported.
FRAMEWORKS = ("tensorflow", "jax", "torch")
# Variables that can decide which code a program loads; `check` imports modules with the tasks' env.
# Libraries have many, so these are parts of names.
LOADS_CODE = re.compile(
    r"^LD_|^(BASH_)?ENV$|PATH|HOME|PRELOAD|INJECT|MODULE|ENGINE|CONF|TOOL|PLUGIN|LIB|STARTUP|HOOK"
    r"|SHELL|COMMAND|FLAGS|OPTIONS|OPT$|TUNABLES|CACHE|GIT_|^LESS|^(CC|CXX|MPLBACKEND)$"
    r"|^PYTHON(?!UNBUFFERED$|HASHSEED$|IOENCODING$|UTF8$|DONTWRITEBYTECODE$)"
)
DEFAULT_DIRECTORY = "~/.tfdeploy"
IN_SOURCE = re.compile(r"[\w.][\w./-]*", re.ASCII)
INTERPRETER = re.compile(r"python[\d.]*|\{python\}|bash|sh", re.ASCII)
URL = re.compile(r"https?://[^\s;|$`<>()'\"\\]+")
NOTIFICATIONS = ("on_end", "on_failure", "on_slow")
RUNS = "runs"  # where everything about runs is written


@dataclass(frozen=True)
class SensitiveValue:
    """A value of hosts.toml that needs trust. `reason` says why; `content` is the digest of what it
    stands for, such as the files that it names, "" if the value says all; `host` is the host of its
    key, "" if it has none."""

    key: str
    value: str
    reason: str
    content: str = ""
    host: str = ""


def find(inventory: Inventory) -> tuple[SensitiveValue, ...]:
    """Return all values that need trust."""
    return (*on_controller(inventory), *on_hosts(inventory))


def on_controller(inventory: Inventory) -> tuple[SensitiveValue, ...]:
    """Return the values that need trust before anything is planned: what ssh runs, the paths that
    are read, and where results are written."""
    link = runs_link(inventory.file.parent)
    programs = _ssh_programs(inventory) if inventory.ssh_config else ()
    values = (*programs, *_paths(inventory))
    return (*values, link) if link else values


def on_hosts(inventory: Inventory) -> tuple[SensitiveValue, ...]:
    """Return the values that need trust before a host is contacted: how it is reached, the hosts,
    and what runs there."""
    return (
        *(_ssh_hosts(inventory) if inventory.ssh_config else ()),
        *_hosts(inventory),
        *_commands(inventory),
        *_variables(inventory),
    )


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


def _ssh_programs(inventory: Inventory) -> Iterator[SensitiveValue]:
    """Yield the ssh_config if it can run or write something."""
    found = _ssh_config(inventory)
    if found and found.keywords:
        reason = f"has {', '.join(found.keywords)}"
        yield SensitiveValue("ssh_config", inventory.ssh_config or "", reason, found.digest)


def _ssh_hosts(inventory: Inventory) -> Iterator[SensitiveValue]:
    """Yield any other ssh_config: it can lead the name of a host to another machine."""
    found = _ssh_config(inventory)
    if found and not found.keywords:
        reason = "decides how hosts are reached"
        yield SensitiveValue("ssh_config", inventory.ssh_config or "", reason, found.digest)


def _ssh_config(inventory: Inventory) -> Found | None:
    if not inventory.ssh_config:
        return None
    from tfdeploy.trust import ssh_keywords

    return ssh_keywords.read(inventory.absolute(inventory.ssh_config), repository(inventory))


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
        yield (
            f"data.{json.dumps(place)}.path",
            data.path or place,
            inventory.data_root(place).resolve(),
        )


def _hosts(inventory: Inventory) -> Iterator[SensitiveValue]:
    """Yield each host, with the Python and the folder of the agent unless they are usual ones."""
    digest = _digests(inventory)
    for host in inventory.hosts:
        table = f"hosts.{host.name}"
        yield SensitiveValue(table, _reached(host), "runs its programs", host=host.name)
        if not PATH_PYTHON.fullmatch(host.python):
            content, reason = digest(host.python), "runs there"
            yield SensitiveValue(f"{table}.python", host.python, reason, content, host.name)
        if not _is_usual(host.directory):
            reason = "can have programs that run there"
            yield SensitiveValue(f"{table}.directory", host.directory, reason, host=host.name)


def _reached(host: Host) -> str:
    """Return what a host is to a person: the words of an ssh command."""
    if host.is_local:
        return "this machine"
    user = f"{host.user}@" if host.user else ""
    port = f":{host.port}" if host.port else ""
    jump = f" by {host.proxy_jump}" if host.proxy_jump else ""
    return f"{user}{host.hostname or host.name}{port}{jump}"


def _is_usual(directory: str) -> bool:
    path = PurePosixPath(posixpath.normpath(directory))
    return path.is_relative_to(DEFAULT_DIRECTORY)


def _commands(inventory: Inventory) -> Iterator[SensitiveValue]:
    """Yield what runs on hosts, or goes there from the controller's environment."""
    training, notify = inventory.training, inventory.notify
    general = _program(inventory, training.command, training.role_args)
    yield SensitiveValue("training.command", general, "runs on its hosts")
    for job in JOBS:
        own = _program(inventory, *training.command_and_args(job))
        if own != general:
            yield SensitiveValue(f"training.{job}.command", own, "runs on its hosts")
    for module in sorted({*training.imports} - {*FRAMEWORKS}):
        yield SensitiveValue("training.imports", module, "is imported on its hosts")
    for name in training.secrets:
        reason = "is sent to its hosts from your environment"
        yield SensitiveValue("training.secrets", name, reason)
    for line in inventory.env.setup if inventory.env else ():
        yield SensitiveValue("env.setup", line, "runs on its hosts")
    for key in NOTIFICATIONS:
        if target := getattr(notify, key):
            content = hashlib.sha256(repr(target).encode(errors="surrogateescape")).hexdigest()
            shown = mask_urls(target[0]) if URL.fullmatch(target[0]) else shlex.join(target)
            reason = "gets a summary of the run, on the chief's host"
            yield SensitiveValue(f"notify.{key}", shown, reason, content)


def _program(inventory: Inventory, command: Sequence[str], role_args: Sequence[str]) -> str:
    """Return what a command runs: `python FILE`, `bash FILE` or `./FILE` with a file of the source,
    because whoever can change that file decides what runs, whatever its arguments are. Of any other
    command return all of it, with what hosts.toml has for its placeholders."""
    program, *rest = command
    if "/" in program and _is_in_source(program):
        return program
    if INTERPRETER.fullmatch(program) and rest and _is_in_source(rest[0]):
        return f"{program} {rest[0]}"
    folder = inventory.training.checkpoint_dir
    text = shlex.join(w.replace("{checkpoint_dir}", folder) for w in (*command, *role_args))
    params = inventory.trials.params
    return f"{text} {params}" if params else text


def _is_in_source(word: str) -> bool:
    """Return whether a word can only name something in the source: no option, no path of a host, no
    placeholder."""
    return bool(IN_SOURCE.fullmatch(word)) and ".." not in word.split("/")


def _variables(inventory: Inventory) -> Iterator[SensitiveValue]:
    """Yield the variables that make programs load other code."""
    digest, reason = _digests(inventory), "can change which code runs on its hosts"
    for table, variables in _task_variables(inventory).items():
        for name in filter(LOADS_CODE.search, variables):
            value = variables[name]
            yield SensitiveValue(f"{table}.{name}", value, reason, digest(value))
    for host in inventory.hosts:
        for name in filter(LOADS_CODE.search, host.env):
            key, value = f"hosts.{host.name}.env.{name}", host.env[name]
            yield SensitiveValue(key, value, reason, digest(value), host.name)


def _digests(inventory: Inventory) -> Callable[[str], str]:
    """Return the function that digests the repository's files that a text names."""
    root = repository(inventory)
    return cache(lambda text: named_files.digest(text, root))


def _task_variables(inventory: Inventory) -> dict[str, dict[str, str]]:
    """Return the tables of [training] that have variables, by their paths in hosts.toml."""
    training = inventory.training
    own = {f"training.{job}": getattr(training, job) for job in JOBS}
    return {
        f"{table}.{key}": getattr(settings, key)
        for table, settings in {"training": training, **own}.items()
        for key in ("env", "role_env")
    }
