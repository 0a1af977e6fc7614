"""The consoles that pages show: the commands and the output of transcripts.

    <!-- transcript first_command 1 3 -->
    ```console
    $ tfdeploy run
    …
    ```

The numbers are those of the commands that are shown; without them, all are. `make schemas` writes
the blocks, and `make docs` fails if a block differs from its transcript.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support import transcript  # noqa: E402 - it is no installed package

if TYPE_CHECKING:
    from collections.abc import Iterator

TRANSCRIPTS = ROOT / "tests/transcripts"
BLOCK = re.compile(r"<!-- transcript (\w+)((?: \d+)*) -->\n```console\n(.*?)```\n", re.DOTALL)


def pages() -> list[Path]:
    """Return the pages that may show consoles."""
    patterns = ("README.md", "docs/*.md", "examples/*.md", "examples/*/README.md")
    return [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]


def filled(text: str) -> str:
    """Return a page's text with its blocks as their transcripts have them."""
    return BLOCK.sub(lambda block: _block(block[1], block[2]), text)


def _block(name: str, numbers: str) -> str:
    steps = list(transcript.read(TRANSCRIPTS / f"{name}.console").shown())
    wanted = [steps[int(number) - 1] for number in numbers.split()] or steps
    texts = ["\n".join(line.removeprefix(transcript.ERRORS) for line in step.lines())
             for step in wanted]  # fmt: skip
    return f"<!-- transcript {name}{numbers} -->\n```console\n" + "\n\n".join(texts) + "\n```\n"


def problems(page: Path) -> Iterator[str]:
    """Yield what is wrong with the consoles of a page."""
    path, text = page.relative_to(ROOT).as_posix(), page.read_text()
    if filled(text) != text:
        yield f"{path}: a block differs from its transcript: make schemas"
