"""Draw what commands show, into docs/pictures/."""

from __future__ import annotations

from typing import TYPE_CHECKING

from make_pictures import svg
from make_pictures.site import ROOT
from make_pictures.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from make_pictures.terminal import Frame

PICTURES = ROOT / "docs" / "pictures"
COLUMNS = 120


def run(terminal: Terminal, command: str) -> None:
    code = terminal.run(["bash", "-c", command])
    if code:
        raise SystemExit(f"{command} exited with {code}:\n{terminal.text}")


def still(folder: Path, picture: tuple[str, str], command: str) -> None:
    """Draw what one command shows."""
    terminal = Terminal(COLUMNS, 40, folder)
    terminal.type(command)
    run(terminal, command)
    write(picture, terminal.frames[-1:], command)


def write(picture: tuple[str, str], frames: Sequence[Frame], title: str) -> None:
    name, description = picture
    (PICTURES / name).write_text(svg.draw(frames, title, description, COLUMNS))
    say(name)


def say(text: str) -> None:
    print(text, flush=True)
