"""What the page of a recipe shows of its output: an excerpt, which its run has printed like this.

    worker:0@this-machine | step 0 loss 2.306
    …
    test accuracy 0.989 at step 601 (from runs/…/checkpoints/model.ckpt-601)

Numbers differ from run to run. `…` stands for lines that are left out, or for the rest of a line.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from support.transcript import LOG_NUMBERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BLOCK = re.compile(r"(?:^ {4}[^\n]*\n)+", re.MULTILINE)
LOG = re.compile(r"(?P<task>[a-z]+:\d+)@this-machine \| (?P<text>.*)")
LEFT_OUT = "…"
# What tfdeploy and eval.py print beside the tasks.
OTHERS = re.compile(
    r"(?:SUCCEEDED \S+ +this-machine  pid \d+  exit 0"
    r"|STOPPED   \S+ +this-machine  pid \d+  the run has ended: \S+ succeeded; stopped by SIGTERM"
    r"|(?:BACKOFF|RUNNING|READY) +\S+ +this-machine  pid \d+  killed by SIGKILL; restart \d of 10"
    r"|run \d{8}-\d{6}-[0-9a-f]{4} succeeded"
    r"|test accuracy \S+ at step \d+(?: \(from runs/…/checkpoints/model\.ckpt-\d+\))?)"
)


def unknown_lines(page: str) -> list[str]:
    """Return the lines of a page's excerpt that neither a task nor tfdeploy can have printed."""
    lines = (line for line in _lines(page) if line != LEFT_OUT)
    return [line for line in lines if not LOG.fullmatch(line) and not OTHERS.fullmatch(line)]


def unprinted(page: str, logs: Mapping[str, str]) -> list[str]:
    """Return for each task the first line of a page's excerpt that its log does not have, or has
    only above the lines that the page shows before. `logs` has the logs of the tasks."""
    found = [LOG.fullmatch(line) for line in _lines(page)]
    shown = [(line["task"], line["text"]) for line in found if line]
    missing = []
    for task, log in logs.items():
        printed = iter([_normal(line) for line in log.splitlines()])
        texts = [text for each, text in shown if each == task]
        missing += [f"{task} | {t}" for t in texts if not any(_is(t, p) for p in printed)][:1]
    return missing


def _lines(page: str) -> Iterator[str]:
    """Yield the lines of the blocks that show what tasks printed."""
    for block in BLOCK.findall(page):
        lines = [line[4:] for line in block.splitlines()]
        if any(map(LOG.fullmatch, lines)):
            yield from lines


def _normal(text: str) -> str:
    return " ".join(LOG_NUMBERS.sub("N", text).split())


def _is(shown: str, printed: str) -> bool:
    start = shown.removesuffix(LEFT_OUT)
    return printed == _normal(shown) if start == shown else printed.startswith(_normal(start))
