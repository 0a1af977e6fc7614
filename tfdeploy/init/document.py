"""Write a hosts.toml in its shortest form: what is a default is left out. Pure."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from tfdeploy.config.toml_text import to_toml
from tfdeploy.formatting.hostlist import expand_names, fold_patterns
from tfdeploy.formatting.humanize import escape_line
from tfdeploy.init import keras
from tfdeploy.init.machine import AUTO, DEFAULT_PYTHON, missing_packages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tfdeploy.init.machine import Machine
    from tfdeploy.init.placement import ProposedPlacement
    from tfdeploy.init.program import Program
    from tfdeploy.init.strategy import Recognized

    Keys = Mapping[str, object]

BARE = re.compile(r"[A-Za-z0-9_-]+")
SHARED_DIRECTORY = "~/.tfdeploy/{host}"
DEFAULTS = (
    "user",
    "python",
    "ports",
    "directory",
    "shared_fs",
)  # keys that are often equal on all hosts
TASK_KEYS = ("gpus", "ps", "chief", "gpus_per_chief", "workers", "gpus_per_worker", "spare")
WHY = {
    "address": "tried from the other hosts",
    "ports": 'the hosts do not reach "auto" ports',
    "directory": "some hosts share a home directory",
    "shared_fs": "they share a home directory",
}
WHY_AUTO = "free ports, found at each start"
COMMENT_COLUMN = 32
MAX_COLUMNS = 88


@dataclass(frozen=True)
class FoundRequirements:
    """What [env] has: `requirements`, a file of the project or a list of packages, and `setup`.
    `unpinned` says why the list has no versions."""

    value: str | tuple[str, ...]
    unpinned: str = ""
    setup: tuple[str, ...] = ()


@dataclass(frozen=True)
class Proposal:
    """Everything that a hosts.toml is written from. `left_out` has the hosts that did not answer,
    with the reason; `requirements` are those of [env], None if all hosts have what the program
    needs."""

    project: str
    program: Program
    recognized: Recognized
    machines: Sequence[Machine]
    placement: ProposedPlacement
    left_out: Mapping[str, str]
    ssh_config: str = ""
    requirements: FoundRequirements | None = None


def write(proposal: Proposal) -> str:
    """Return the text of a hosts.toml."""
    tables = {machine.name: _keys(machine, proposal) for machine in proposal.machines}
    defaults = _defaults(tables)
    own = {name: _without(keys, defaults) for name, keys in tables.items()}
    sections = [
        _top(proposal),
        _training(proposal),
        _environment(proposal),
        _source(proposal.program),
        _table("defaults", defaults) if defaults else "",
        *_hosts(own, {machine.name: machine.summary for machine in proposal.machines}),
        *_left_out(proposal.left_out),
    ]
    return "\n".join(section for section in sections if section)


def _top(proposal: Proposal) -> str:
    lines = [
        "# Written by tfdeploy init. All other keys: tfdeploy example",
        f"project = {to_toml(proposal.project)}",
    ]
    if proposal.ssh_config:
        lines.append(f"ssh_config = {to_toml(proposal.ssh_config)}")
    return _lines(lines)


def _training(proposal: Proposal) -> str:
    recognized, program = proposal.recognized, proposal.program
    flag = recognized.checkpoint_flag
    command = [*program.command, *([f"{flag}={{checkpoint_dir}}"] if flag else [])]
    words = shlex.join(command).replace("'", "") if _is_plain(command) else command
    lines = ["[training]", *map(_comment, reasons(proposal)), f"command = {to_toml(words)}"]
    if recognized.role != "tf_config":
        lines.append(f"role = {to_toml(recognized.role)}")
    if recognized.role_args:
        lines.append(f"role_args = {to_toml(list(recognized.role_args))}")
    lines += [_key(key, value) for key, value in recognized.keys.items() if key != "chief"]
    if recognized.checkpoint_dir:
        lines.append(f"checkpoint_dir = {to_toml(recognized.checkpoint_dir)}")
    need = recognized.keras_2
    if need and need.by_variable:
        lines.append(_aligned(f'env = {{ {keras.VARIABLE} = "1" }}', need.reason))
    if "chief" in recognized.keys:
        lines += ["", _table("training.chief", cast("Keys", recognized.keys["chief"])).rstrip("\n")]
    return _lines(lines)


def reasons(proposal: Proposal) -> tuple[str, ...]:
    """Return sentences that say what the script uses, which host runs what, and what the user has
    to add."""
    program, required = proposal.program, proposal.recognized.required
    if program.unreadable:
        first = f"{program.script} can't be read as Python ({program.unreadable}): one worker"
        return (first, *proposal.placement.reasons)
    sentence = f"{program.script} requires {', '.join(required)} too: add it to the command"
    own = (sentence,) if required else ()
    return (*proposal.recognized.reasons, *proposal.placement.reasons, *own)


def _is_plain(words: Iterable[str]) -> bool:
    """Return whether no word of a command has a space or a quote: it can be one string."""
    return all(re.fullmatch(r"[\w./={}-]+", word) for word in words)


def _environment(proposal: Proposal) -> str:
    """Return the table [env]."""
    if proposal.requirements is None:
        return ""
    value, unpinned = proposal.requirements.value, proposal.requirements.unpinned
    comments = [missing_packages(proposal.program, proposal.machines)]
    comments += [f"without versions: {unpinned}"] if unpinned else []
    line = f"requirements = {to_toml(value)}"
    if len(line) > MAX_COLUMNS and not isinstance(value, str):
        line = "\n".join(["requirements = [", *(f"    {to_toml(each)}," for each in value), "]"])
    lines = [_comment(comments[0]), "[env]", *map(_comment, comments[1:]), line]
    setup = proposal.requirements.setup
    return _lines([*lines, *([f"setup = {to_toml(setup)}"] if setup else [])])


def _source(program: Program) -> str:
    lines = []
    if program.source != ".":
        lines.append(_aligned(f"path = {to_toml(program.source)}", "the script imports from it"))
    if program.environments:
        exclude = f"exclude = {to_toml(list(program.environments))}"
        lines.append(_aligned(exclude, "of this machine only"))
    return _lines(["[source]", *lines]) if lines else ""


def _keys(machine: Machine, proposal: Proposal) -> dict[str, object]:
    """Return the keys of a host, without those that would only repeat a default."""
    keys: dict[str, object] = {"transport": "local"} if machine.is_local else {}
    optional = {
        "user": machine.user,
        "address": machine.address,
        "python": "" if machine.python == DEFAULT_PYTHON else machine.python,
        "ports": machine.ports,
        "directory": SHARED_DIRECTORY if machine.sharing == "some" else "",
        "shared_fs": machine.sharing == "all",
    }
    keys |= {key: value for key, value in optional.items() if value}
    tasks = proposal.placement.keys[machine.name]
    return keys | {key: tasks[key] for key in TASK_KEYS if key in tasks}


def _defaults(tables: Mapping[str, Keys]) -> dict[str, object]:
    """Return the keys that have one value on all hosts; of SSH's keys, on all hosts with SSH."""
    found = {}
    for key in DEFAULTS if len(tables) > 1 else ():
        hosts = [t for t in tables.values() if key != "user" or "transport" not in t]
        values = {table.get(key) for table in hosts}
        if len(hosts) > 1 and len(values) == 1 and values != {None}:
            found[key] = values.pop()
    return found


def _without(keys: Keys, defaults: Keys) -> dict[str, object]:
    return {key: value for key, value in keys.items() if defaults.get(key) != value}


def _hosts(tables: Mapping[str, Keys], summaries: Mapping[str, str]) -> Iterator[str]:
    """Yield a table for each host, or for several with equal keys."""
    groups: dict[str, list[str]] = {}
    for name, keys in tables.items():
        equal = {key: value for key, value in keys.items() if key != "address"}
        groups.setdefault(json.dumps([equal, "address" in keys]), []).append(name)
    for names in groups.values():
        for pattern in _patterns(names, tables):
            covered = expand_names(pattern)
            about = {summaries[name] for name in covered}
            yield _table(
                f"hosts.{pattern if BARE.fullmatch(pattern) else to_toml(pattern)}",
                _merged(covered, tables),
                about.pop() if len(about) == 1 else "",
            )


def _patterns(names: Sequence[str], tables: Mapping[str, Keys]) -> Iterator[str]:
    """Yield names with brackets for hosts with equal keys; single names for hosts whose addresses
    have no pattern of the same order."""
    for pattern in fold_patterns(names):
        covered = expand_names(pattern)
        addresses = [tables[name].get("address") for name in covered]
        folded = fold_patterns([str(address) for address in addresses if address])
        is_one = len({*addresses}) == 1
        if is_one or (len(folded) == 1 and expand_names(folded[0]) == addresses):
            yield pattern
        else:
            yield from covered


def _merged(names: Sequence[str], tables: Mapping[str, Keys]) -> dict[str, object]:
    """Return the keys of hosts that share a table: `address` with brackets."""
    keys = dict(tables[names[0]])
    if "address" in keys:
        addresses = dict.fromkeys(str(tables[name]["address"]) for name in names)
        [keys["address"]] = fold_patterns([*addresses])
    return keys


def _table(name: str, keys: Keys, about: str = "") -> str:
    header = _aligned(f"[{name}]", about) if about else f"[{name}]"
    return _lines([header, *(_key(key, value) for key, value in keys.items())])


def _key(key: str, value: object) -> str:
    """Return the line of a key, with a comment if it is not plain why it is necessary."""
    if isinstance(value, dict):
        return f"{key} = {{ {', '.join(f'{k} = {to_toml(v)}' for k, v in value.items())} }}"
    line = f"{key} = {to_toml(value)}"
    why = WHY_AUTO if value == AUTO else WHY.get(key)
    return _aligned(line, why) if why else line


def _left_out(failed: Mapping[str, str]) -> Iterator[str]:
    for name, reason in failed.items():
        table = f"hosts.{name if BARE.fullmatch(name) else to_toml(name)}"
        yield _lines([_comment(f"[{table}]"), *(_comment(line) for line in reason.splitlines())])


def _comment(text: str) -> str:
    """Return a comment; what a host said can't end its line."""
    return f"# {escape_line(text)}"


def _aligned(text: str, comment: str) -> str:
    return f"{text:<{COMMENT_COLUMN}} {_comment(comment)}"


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
