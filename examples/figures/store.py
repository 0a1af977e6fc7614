"""The raw data of the figures: JSON files in docs/figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"
FOLDER = DOCS / "figures"
SIMULATION, REAL = "simulation.json", "real.json"


def write(name: str, content: dict[str, Any]) -> None:
    """Write a document with one run a line."""
    parts = (f"{json.dumps(key)}: {_value(value)}" for key, value in content.items())
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / name).write_text("{\n" + ",\n".join(parts) + "\n}\n")


def read(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / name).read_text())


def _value(value: Any) -> str:
    if not isinstance(value, list):
        return json.dumps(value)
    return "[\n" + ",\n".join(json.dumps(each) for each in value) + "\n]"
