"""The tables of [hosts]: each is a host, or many that are alike, as [hosts."gpu[01-16]"]. Pure.

A host's keys stand in its own table, else in that of the many it is among, else in [defaults].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfdeploy.hostnames import unfolded
from tfdeploy.tables import SSH_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Keys = Mapping[str, Any]

NAMED_BY_TABLE = "unknown key; a host is named by its table, [hosts.NAME]"
# Many hosts have them in turn: [hosts."gpu[1-8]"] and hostname = "10.0.0.[11-18]".
IN_TURN = ("hostname", "address")


@dataclass(frozen=True)
class Entry:
    """What stands of one host, not checked yet; `table` is where, and `among` where it is one of
    many as well."""

    table: str
    keys: Keys
    among: str = ""


def entries(tables: Keys, defaults: Keys, problems: list[str]) -> list[Entry]:
    """The hosts, as the file first names them, with all of their keys, `name` among them. A table
    that can't be read so is told to `problems`, and left out."""
    named: dict[str, list[Entry]] = {}
    for table, keys in tables.items():
        if not isinstance(keys, dict):
            continue  # told where the file is checked as a whole
        try:
            for name, entry in _in_turn(table, keys):
                named.setdefault(name, []).append(entry)
        except ValueError as error:
            problems.append(f"hosts.{table}{error}")
    problems += _told_twice(named)
    return [_whole(name, found, defaults) for name, found in named.items()]


def _in_turn(table: str, keys: dict[str, Any]) -> Iterator[tuple[str, Entry]]:
    if "name" in keys:
        raise ValueError(f".name: {NAMED_BY_TABLE}")
    names = _unfolded("", table)
    if names == [table]:
        yield table, Entry(table, keys)
        return
    texts = {key: text for key in IN_TURN if isinstance(text := keys.get(key), str) and "[" in text}
    own = {key: _unfolded(f".{key}", text) for key, text in texts.items()}
    for key, values in own.items():
        if len(values) != len(names):
            found = f"found {len(values)} in {keys[key]}"
            raise ValueError(f".{key}: {found}, expected one for each of the {len(names)} hosts")
    for index, name in enumerate(names):
        yield name, Entry(table, {**keys, **{key: values[index] for key, values in own.items()}})


def _unfolded(where: str, text: str) -> list[str]:
    try:
        return unfolded(text)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _told_twice(named: Mapping[str, Sequence[Entry]]) -> Iterator[str]:
    """A host may have a table of its own, and be among many; but not among many twice."""
    told: set[tuple[str, ...]] = set()
    for name, found in named.items():
        many = tuple(entry.table for entry in found if entry.table != name)
        if len(many) > 1 and many not in told:
            told.add(many)
            yield f"hosts.{many[1]}: {name} is in hosts.{many[0]} already"


def _whole(name: str, found: Sequence[Entry], defaults: Keys) -> Entry:
    """Its own table lies over the other one, wherever they stand, and over [defaults]. SSH keys
    that lie under a local host's are left out: they are meant for the others."""
    under, *over = sorted(found, key=lambda entry: entry.table == name)
    top = over[0] if over else under
    lower = _over(under.keys, defaults) if over else defaults
    if top.keys.get("transport", lower.get("transport")) == "local":
        lower = {key: value for key, value in lower.items() if key not in SSH_KEYS}
    keys = {**_over(top.keys, lower), "name": name}
    return Entry(top.table, keys, under.table if over else "")


def _over(keys: Keys, under: Keys) -> Keys:
    """Only `env` is merged, not replaced."""
    env = {"env": {**under["env"], **keys["env"]}} if _has_env(keys) and _has_env(under) else {}
    return {**under, **keys, **env}


def _has_env(keys: Keys) -> bool:
    return isinstance(keys.get("env"), dict)
