"""Say in words what needs trust: a line for each value, one for hosts that differ in their names.
Pure."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from tfdeploy.formatting.hostlist import expand_names, fold_patterns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfdeploy.trust.sensitive_values import SensitiveValue


def lines(values: Iterable[SensitiveValue], before: Mapping[str, str]) -> list[str]:
    """Return a line for each value that needs trust. `before` has the value that the user trusted
    under a key until now."""
    groups: dict[tuple[str, ...], list[SensitiveValue]] = {}
    for value in values:
        alike = (_after_host(value),) if value.host else (value.key, value.value)
        groups.setdefault((*alike, value.reason, _was(value, before)), []).append(value)
    return [line for (*_, was), group in groups.items() for line in _lines(group, was)]


def _lines(group: Sequence[SensitiveValue], was: str) -> list[str]:
    """Return one line for the same key of several hosts, if it shows which of them has which
    value; else a line for each."""
    hosts, values = [each.host for each in group], [each.value for each in group]
    in_order = _is_in_order(hosts) and (len({*values}) == 1 or _is_in_order(values))
    if group[1:] and in_order:
        key = f"hosts.{_fold(hosts)}{_after_host(group[0])}"
        return [f"{key} = {_quote(_fold(values))} {group[0].reason}{was}"]
    return [f"{each.key} = {_quote(each.value)} {each.reason}{was}" for each in group]


def _is_in_order(names: Sequence[str]) -> bool:
    """Return whether patterns of names say the same as their list."""
    with suppress(ValueError):
        return [n for pattern in fold_patterns(names) for n in expand_names(pattern)] == [*names]
    return False


def _after_host(value: SensitiveValue) -> str:
    """Return the key without its table, such as ".python" of hosts.gpu-01.python."""
    return value.key.removeprefix(f"hosts.{value.host}")


def _was(value: SensitiveValue, before: Mapping[str, str]) -> str:
    known = before.get(value.key)
    if known == value.value:
        return " (its files have changed)"
    return "" if known is None else f" (until now {_quote(known)})"


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _fold(names: Iterable[str]) -> str:
    return ", ".join(fold_patterns(list(dict.fromkeys(names))))
