"""Make the pictures of the documentation from a real training on this machine.

`make docs-pictures` calls this. It uses only the command line: what the pictures show is what the
commands print, write and draw. It needs Chromium, sshd and TensorFlow, and takes some minutes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from make_pictures import shared, trials
from make_pictures.drawing import COLUMNS, PICTURES, run, say, still, write
from make_pictures.files import PLAN, REPORT, SESSION, STATUS, WATCH
from make_pictures.site import training_site
from make_pictures.terminal import Frame, Terminal
from PIL import Image
from support.browser import Chromium

from tfdeploy.branches.live import summary

STEPS = 500
LONG = "--name base -- --learning_rate 0.0002 --steps 6000"
LOSSES = 12  # in the small line of the live view
PAGE_WIDTH, PAGE_HEIGHT, COLOURS = 1200, 1500, 256  # of a PNG


def main() -> None:
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with (
        # Chromium may still write to its profile.
        tempfile.TemporaryDirectory(prefix="tfdeploy-", ignore_cleanup_errors=True) as scratch,
        training_site(Path(scratch), STEPS) as folder,
    ):
        try:
            make_terminal_pictures(folder)
            finish_run(folder)
            make_pages(folder, Path(scratch) / "browser")
        except BaseException:
            subprocess.run(["tfdeploy", "stop"], cwd=folder, check=False)
            raise
    shared.main()
    trials.main()


def make_terminal_pictures(folder: Path) -> None:
    """Start a long run, and record what the commands show of it."""
    still(folder, PLAN, "tfdeploy plan | head -9")
    recorded = Terminal(COLUMNS, 27, folder)
    for command in ("tfdeploy push", f"tfdeploy start {LONG}"):
        recorded.type(command)
        run(recorded, command)
    watch(folder)
    for command in ("tfdeploy status", "tfdeploy collect"):
        recorded.type(command)
        run(recorded, command)
    write(SESSION, recorded.frames, "tfdeploy")
    kill_worker(folder)
    still(folder, STATUS, "tfdeploy status")


def watch(folder: Path) -> None:
    """Draw the live view when it has a line of the loss, then leave it."""
    terminal, seen = Terminal(COLUMNS, 26, folder), list[Frame]()

    def is_telling(text: str) -> bool:
        if sum(text.count(bar) for bar in summary.BLOCKS) >= LOSSES:
            seen.append(terminal.frames[-1])
        return bool(seen)

    if terminal.run(["tfdeploy", "watch"], is_telling, b"q"):
        raise SystemExit(f"watch failed:\n{terminal.text}")
    write(WATCH, seen, "tfdeploy watch")


# The training


def kill_worker(folder: Path) -> None:
    """Kill worker:1 as a fault would, and wait until it trains again: the report shows it."""
    [victim] = [task for task in status(folder) if task["task"] == "worker:1"]
    os.kill(victim["pid"], signal.SIGKILL)
    while not any(t["restarts"] and t["state"] == "READY" for t in status(folder)):
        time.sleep(1)


def status(folder: Path) -> list[dict[str, Any]]:
    return json.loads(tfdeploy(folder, "status", "--json"))["tasks"]


def finish_run(folder: Path) -> None:
    """Follow the long run to its end."""
    tfdeploy(folder, "attach")


def tfdeploy(folder: Path, *words: str) -> str:
    say(f"tfdeploy {' '.join(words)}")
    command = ["tfdeploy", *words]
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


# The pages


def make_pages(folder: Path, profile: Path) -> None:
    tfdeploy(folder, "report", "base", "-o", "base.html")
    with Chromium(profile) as browser:
        picture = PICTURES / REPORT[0]
        browser.open((folder / "base.html").as_uri(), width=PAGE_WIDTH, scheme="light")
        browser.screenshot(picture)
        shrink(picture, PAGE_HEIGHT)
        say(REPORT[0])


def shrink(file: Path, height: int) -> None:
    """Keep the upper part of a screenshot, in few colours."""
    with Image.open(file) as full:
        upper = full.convert("RGB").crop((0, 0, full.width, min(height, full.height)))
    upper.quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)


if __name__ == "__main__":
    main()
