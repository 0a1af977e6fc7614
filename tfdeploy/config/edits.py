"""Which keys of a hosts.toml were edited since a run has started. Values are only compared by their
hashes, and never shown: `env` may have secrets."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tfdeploy.config import toml_text
from tfdeploy.config.hosts_file import open_hosts_file
from tfdeploy.errors import InventoryError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

DIGITS = 12


def digests(file: Path) -> dict[str, str]:
    """Return a hash of the value of each key, by its path, such as training.env.LR; {} if the file
    can't be read."""
    with suppress(OSError, ValueError, RecursionError, InventoryError):
        with open_hosts_file(file) as content:
            table = toml_text.parse(content.read().decode("utf-8-sig"))
        return {path: _digest(value) for path, value in _keys(table)}
    return {}


def edited(before: Mapping[str, str], file: Path) -> list[str]:
    """Return the paths of keys that were changed, added or removed since `digests` returned
    `before`; [] if either is unknown."""
    now = digests(file)
    if not before or not now:
        return []
    return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))


def _keys(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from _keys(value, f"{above}{key}.")
        else:
            yield above + key, value


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:DIGITS]
