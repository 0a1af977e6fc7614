"""The consoles that pages show: the commands and the output of transcripts.

    <!-- transcript first_command 1 3 -->
    ```console
    $ tfdeploy run
    …
    ```

The numbers are those of the commands that are shown; without them, all are. `make schemas` writes
the blocks, and `make docs` fails if a block differs from its transcript, or if a page shows output
that no transcript printed.
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
ANY_BLOCK = re.compile(r"^```[^\n]*\n.*?^```$|(?:^ {4}[^\n]*\n)+", re.DOTALL | re.MULTILINE)
# Lines that only tfdeploy prints.
OUTPUT = re.compile(
    r"^ *(?:(?:error|note|hint|warning): |[A-Z]{4,9} +\w+:\d|checkpoint /|output /"
    r"|\w+:\d+@\S+ \| |run \d{8}-|pushed release )",
    re.MULTILINE,
)
# tests/examples compares what these pages show with what the examples print.
EXAMPLES = re.compile(r"examples/\w+/README\.md")


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
    if text.count("```console\n") > len(BLOCK.findall(text)):
        yield f"{path}: a console without a transcript: <!-- transcript NAME --> in the line before"
    if not EXAMPLES.fullmatch(path):
        yield from (f"{path}: no transcript has printed this: {line}" for line in unprinted(text))


def unprinted(text: str) -> Iterator[str]:
    """Yield the first line of each block of a page with output that is no transcript's."""
    for block in ANY_BLOCK.finditer(BLOCK.sub("", text)):
        if OUTPUT.search(block[0]):
            yield block[0].strip("`\n ").splitlines()[0]
