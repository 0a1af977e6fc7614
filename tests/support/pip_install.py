"""Run `pip install`, which prints hundreds of lines, or none for minutes; print what it does now.

    .venv/bin/python tests/support/pip_install.py WHAT PIP_ARGUMENT...

Each line is complete, so that a log of CI is as readable as a terminal. If pip fails, its last
lines follow.
"""

from __future__ import annotations

import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections import deque

SILENT_S = 10.0  # the longest time without a line
LARGE = re.compile(
    r"Downloading (\S+\.(?:whl|gz|zip)) \((\d\d+(?:\.\d)? MB|.* GB)\)"
)  # 10 MB or more
FOUND = re.compile(r"Collecting (\S+?)(?=[\[<>=!~;( ]|$)")
INSTALLING = re.compile(r"Installing collected packages: (.*)")
LAST_LINES = 40


class Progress:
    """What pip does now, as `text`, from the lines that it prints."""

    def __init__(self) -> None:
        self.text = "starting"
        self.packages = 0

    def take(self, line: str) -> bool:
        """Take a line; return whether it is worth a line of its own."""
        if download := LARGE.match(line):
            self.text = f"downloading {download[1]} ({download[2]})"
            return True
        if installing := INSTALLING.match(line):
            self.packages = installing[1].count(",") + 1
            self.text = f"unpacking {self.packages} package{'s' * (self.packages != 1)}"
            return True
        if found := FOUND.match(line):
            self.packages += 1
            self.text = f"looking for {found[1]}, package {self.packages}"
        return False


def main(what: str, arguments: list[str]) -> int:
    start, progress, last = time.monotonic(), Progress(), deque[str](maxlen=LAST_LINES)
    shown = start

    def show(text: str) -> None:
        nonlocal shown
        shown = time.monotonic()
        print(f"  {shown - start:3.0f} s  {text}", flush=True)

    print(f"Installing {what}", flush=True)
    command = [sys.executable, "-m", "pip", "install", "--progress-bar", "off", *arguments]
    pip = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"},
    )
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(pip, lines), daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=max(0.0, shown + SILENT_S - time.monotonic()))
        except queue.Empty:
            show(progress.text)
            continue
        if line is None:
            break
        last.append(line)
        if progress.take(line.strip()):
            show(progress.text)
    if pip.wait() == 0:
        show("done")
    else:
        print(*last, sep="", file=sys.stderr)
    return pip.returncode


def _read(pip: subprocess.Popen[str], lines: queue.SimpleQueue[str | None]) -> None:
    for line in pip.stdout or ():
        lines.put(line)
    lines.put(None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
