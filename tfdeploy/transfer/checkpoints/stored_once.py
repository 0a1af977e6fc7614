"""Store a checkpoint once that comes in two ways: it is an output while no state file names it.

runs/<run>/checkpoints/ and runs/<run>/outputs/<checkpoint_dir>/ then have hard links to its files.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from tfdeploy.shared.units import SET
from tfdeploy.transfer.units import Unit, local_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.own_folder import OwnFolder
    from tfdeploy.run import Run


def checkpoint_outputs(run: Run) -> OwnFolder:
    """Return where the files of the chief's checkpoint_dir are stored as outputs. Raises
    OSError."""
    outputs, place = run.open() / "outputs", local_path(_checkpoint_dir(run))
    return outputs if place in ("", ".") else outputs / place


def link_checkpoints(run: Run, units: Sequence[Unit]) -> None:
    """Make those outputs of the chief that are in checkpoints/ with the same sizes and times.
    Raises OSError."""
    checkpoints, outputs = run.open() / "checkpoints", checkpoint_outputs(run)
    for unit in units:
        if _is_in_checkpoints(run, unit):
            names = map(posixpath.basename, unit.files)
            for name in sorted(names, key=lambda name: name.endswith(".index")):
                checkpoints.give(name, outputs)


def _is_in_checkpoints(run: Run, unit: Unit) -> bool:
    if unit.kind != SET or (posixpath.dirname(unit.path) or ".") != _checkpoint_dir(run):
        return False
    files = {posixpath.basename(path): stamp for path, stamp in unit.files.items()}
    return Unit(unit.path, SET, files).is_in(run.open() / "checkpoints")


def _checkpoint_dir(run: Run) -> str:
    return posixpath.normpath(run.inventory.training.checkpoint_dir)
