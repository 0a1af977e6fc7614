"""The blocks of code of documentation pages, which tests run."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def block(page: str, language: str) -> str:
    """Return the only block of code in a language of a page, such as docs/jax.md."""
    [found] = re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    return str(found)
