"""Expand the tables of [hosts]: each is one host, or several, such as [hosts."gpu[01-16]"]. Pure.

A key of a host comes from its own table, else from the table with brackets that covers it, else
from [defaults].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfdeploy.config.models import SSH_KEYS
from tfdeploy.formatting.hostlist import expand_names
from tfdeploy.formatting.humanize import format_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Keys = Mapping[str, Any]

NAME_IS_TABLE = "unknown key; the name of a host is that of its table, [hosts.NAME]"
# In a table of several hosts these keys may have one value for each host:
# [hosts."gpu[1-8]"] and hostname = "10.0.0.[11-18]".
EXPANDED_KEYS = ("hostname", "address")


@dataclass(frozen=True)
class HostEntry:
    """The keys of one host, not validated yet.

    `table` is the table that an error names; `pattern_table` the table of several hosts that the
    host has as well, or "".
    """

    table: str
    keys: Keys
    pattern_table: str = ""


def expand_host_tables(tables: Keys, defaults: Keys, problems: list[str]) -> list[HostEntry]:
    """Return an entry with all keys, `name` among them, for each host, in the file's order.

    A table that cannot be expanded is left out; a message about it is added to `problems`.
    """
    by_name: dict[str, list[HostEntry]] = {}
    for table, keys in tables.items():
        if not isinstance(keys, dict):
            continue  # the validation of the whole file reports it
        try:
            for name, entry in _expand_table(table, keys):
                by_name.setdefault(name, []).append(entry)
        except ValueError as error:
            problems.append(f"hosts.{table}{error}")
    problems += _find_overlaps(by_name)
    return [_merge_entries(name, entries, defaults) for name, entries in by_name.items()]


def _expand_table(table: str, keys: dict[str, Any]) -> Iterator[tuple[str, HostEntry]]:
    """Yield (name, entry) for each host of a table. Raises ValueError."""
    if "name" in keys:
        raise ValueError(f".name: {NAME_IS_TABLE}")
    names = _expand("", table)
    if names == [table]:
        yield table, HostEntry(table, keys)
        return
    expanded = {
        key: _expand(f".{key}", text)
        for key in EXPANDED_KEYS
        if isinstance(text := keys.get(key), str) and "[" in text
    }
    for key, values in expanded.items():
        if len(values) != len(names):
            raise ValueError(
                f".{key}: found {format_count(len(values), 'value')} in {keys[key]}; "
                f"expected {len(names)}, one for each host"
            )
    for index, name in enumerate(names):
        own = {key: values[index] for key, values in expanded.items()}
        yield name, HostEntry(table, {**keys, **own})


def _expand(path: str, text: str) -> list[str]:
    try:
        return expand_names(text)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _find_overlaps(by_name: Mapping[str, Sequence[HostEntry]]) -> Iterator[str]:
    """Yield a message for each two tables with brackets that cover the same host."""
    reported: set[tuple[str, ...]] = set()
    for name, entries in by_name.items():
        tables = tuple(entry.table for entry in entries if entry.table != name)
        if len(tables) > 1 and tables not in reported:
            reported.add(tables)
            yield (
                f"hosts.{tables[1]}: {name} is in hosts.{tables[0]} already; "
                "expected it in one table with brackets"
            )


def _merge_entries(name: str, entries: Sequence[HostEntry], defaults: Keys) -> HostEntry:
    """Merge a host's own table over the table of several hosts, and both over [defaults].

    SSH keys under those of a host without SSH are dropped: they are for the other hosts.
    """
    under, *over = sorted(entries, key=lambda entry: entry.table == name)
    top = over[0] if over else under
    lower = _merge_keys(under.keys, defaults) if over else defaults
    if top.keys.get("transport", lower.get("transport", "ssh")) == "local":
        lower = {key: value for key, value in lower.items() if key not in SSH_KEYS}
    keys = {**_merge_keys(top.keys, lower), "name": name}
    return HostEntry(top.table, keys, under.table if over else "")


def _merge_keys(keys: Keys, under: Keys) -> Keys:
    """Return `under` overridden by `keys`. Only `env` is merged; every other key is replaced."""
    env = {"env": {**under["env"], **keys["env"]}} if _has_env(keys) and _has_env(under) else {}
    return {**under, **keys, **env}


def _has_env(keys: Keys) -> bool:
    return isinstance(keys.get("env"), dict)
