"""Evidence of a failed test in tests/.failed/<test>/: the state of everything that it started."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Protocol

FAILED = Path(__file__).parents[1] / ".failed"


class Witness(Protocol):
    """Something that a test starts and that can describe its state."""

    def evidence(self) -> dict[str, str]:
        """Return file names with contents: status, ends of logs, processes."""


_used: list[Witness] = []


def reset() -> None:
    """Forget the witnesses of the previous test."""
    _used.clear()


def used(witness: Witness) -> None:
    """Register what the running test uses."""
    if not any(each is witness for each in _used):
        _used.append(witness)


def write(test: str) -> str:
    """Write the evidence of all registered witnesses, and return it as one text."""
    folder = FAILED / re.sub(r"[^\w.-]+", "-", test).strip("-")[:150]
    shutil.rmtree(folder, ignore_errors=True)
    text = f"stored in {folder}\n"
    for number, witness in enumerate(_used):
        for name, content in _evidence_of(witness).items():
            file = folder / (f"{number}-{name}" if len(_used) > 1 else name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
            text += f"== {file.name}\n{content}\n"
    return text


def _evidence_of(witness: Witness) -> dict[str, str]:
    try:
        return witness.evidence()
    except Exception as error:
        return {"error.txt": f"{type(witness).__name__} has no evidence: {error!r}"}


def end_of(text: str, lines: int = 40) -> str:
    return "\n".join(text.splitlines()[-lines:])
