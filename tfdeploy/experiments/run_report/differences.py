"""Compare what runs were started with: every key of hosts.toml, the words, the release. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfdeploy.experiments.run_report import redact
from tfdeploy.shared import installer_output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tfdeploy.run import Run

VARIABLES = ("env", "role_env")
WORDS = ("command", "role_args")
MAX_VALUE = 400
ABSENT = "–"


@dataclass(frozen=True)
class Row:
    """A key and its value in each run. `differs` compares the real values, also hidden ones."""

    key: str
    values: tuple[str, ...]
    differs: bool


def rows(runs: Sequence[Run], redact_text: Callable[[str], str]) -> tuple[Row, ...]:
    """Return a row for the release, the data sets, and each key of hosts.toml that differs;
    `redact_text` hides the values of secrets."""
    settings = [dict(_settings(run)) for run in runs]
    keys = dict.fromkeys(key for each in settings for key in each)
    found = []
    for key in keys:
        pairs = [each.get(key, ("", ABSENT)) for each in settings]
        differs = len({real for real, _ in pairs}) > 1
        if differs or key == "release":
            found.append(Row(key, tuple(redact_text(shown) for _, shown in pairs), differs))
    return tuple(found)


def _settings(run: Run) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each key with its real value, and with the value to show."""
    yield "release", (run.release, run.release)
    for place, release in run.data.items():
        yield f"data {place}", (release, release)
    inventory = run.inventory
    table = inventory.to_values({"file", "hosts"})
    yield from _flatten(table, ())
    for host in inventory.hosts:
        values = host.to_toml()
        values.pop("address", None)
        if host.name in run.auto_ports:
            values["ports"] = "auto"  # as hosts.toml says it; the start has chosen some
        yield from _flatten(values, ("hosts", host.name))


def _flatten(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, str]]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _flatten(item, (*path, name))
    elif value is not None:
        yield ".".join(path), (json.dumps(value, sort_keys=True), _show(value, path))


def _show(value: Any, path: tuple[str, ...]) -> str:
    if path[0] == "notify":  # the URL of a chat lets anybody write to it
        return redact.HIDDEN
    if path[0] == "env":
        return redact.HIDDEN if path[-1] == "setup" else _show_requirements(value)
    if len(path) > 1 and path[-2] in VARIABLES:
        return redact.show_variable(path[-1], str(value))
    if path[-1] in WORDS and isinstance(value, list):
        return " ".join(redact.show_words([str(word) for word in value]))[:MAX_VALUE]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text[:MAX_VALUE]


def _show_requirements(value: Any) -> str:
    """Return the packages, or the version of Python, without the passwords of URLs."""
    lines = value if isinstance(value, list) else [value]
    return ", ".join(installer_output.clean(str(line)) for line in lines)[:MAX_VALUE]
