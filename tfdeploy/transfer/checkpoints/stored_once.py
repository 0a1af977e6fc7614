"""Store a checkpoint once that comes in two ways: it is an output while no state file names it.

runs/<run>/checkpoints/ and runs/<run>/outputs/<checkpoint_dir>/ then have hard links to its files.
"""

from __future__ import annotations

import os
import posixpath
import shutil
from typing import TYPE_CHECKING

from tfdeploy.agent.outputs.units import SET
from tfdeploy.transfer.units import Unit, local_path

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tfdeploy.run import Run


def checkpoint_output(run: Run, name: str) -> Path:
    """Return where a file of the chief's checkpoint_dir is stored as an output."""
    return run.folder / "outputs" / local_path(_checkpoint_dir(run)) / name


def link_checkpoints(run: Run, units: Sequence[Unit]) -> None:
    """Make those outputs of the chief that are in checkpoints/ with the same sizes and times.
    Raises OSError."""
    for unit in units:
        if _is_in_checkpoints(run, unit):
            names = map(posixpath.basename, unit.files)
            for name in sorted(names, key=lambda name: name.endswith(".index")):
                link_file(run.folder / "checkpoints" / name, checkpoint_output(run, name))


def link_file(source: Path, target: Path) -> None:
    """Make `target` a hard link, or a copy if the file system has none. Raises OSError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _is_in_checkpoints(run: Run, unit: Unit) -> bool:
    if unit.kind != SET or (posixpath.dirname(unit.path) or ".") != _checkpoint_dir(run):
        return False
    files = {posixpath.basename(path): stamp for path, stamp in unit.files.items()}
    return Unit(unit.path, SET, files).is_in(run.folder / "checkpoints")


def _checkpoint_dir(run: Run) -> str:
    return posixpath.normpath(run.inventory.training.checkpoint_dir)
