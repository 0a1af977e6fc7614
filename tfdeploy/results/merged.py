"""Folders that several tasks write, as one: runs/<run>/merged/.

For programs whose tasks write into one results folder by design, such as KerasTuner's tuners, and
whose tools read it as a whole. It is made anew by each collect, of files that outputs/ has: by hard
links, so that no file is stored twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.errors import RunError
from tfdeploy.results.run_folder import outputs_folder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tfdeploy.folders.own_folder import OwnFolder
    from tfdeploy.planning.plan import Placement
    from tfdeploy.run import Run

MERGED = "merged"


def merge_outputs(run: Run) -> list[RunError]:
    """Merge each folder of `outputs_merge`; return what went wrong. Of files with one name the
    chief's counts, else that of the task with the newest file."""
    names, merged = run.inventory.training.outputs_merge, run.open() / MERGED
    if not names:
        return []
    merged.delete()
    try:
        for name in names:
            for folder in _least_first(run, name):
                for path in folder.files():
                    folder.give(path, merged / name)
    except OSError as error:
        where = f"{error.filename or merged.path}: {error.strerror}"
        hint = "outputs/ has all files; one name may be a file of one task and a folder of another"
        return [RunError(f"can't merge the folders of outputs_merge: {where}", hint)]
    return []


def _least_first(run: Run, name: str) -> Iterable[OwnFolder]:
    """Return the folder of this name of each task; the one that counts most is the last."""
    chief = run.plan.chief

    def weight(placement: Placement) -> tuple[bool, int]:
        files = (outputs_folder(run, placement) / name).files().values()
        return placement == chief, max((info.st_mtime_ns for info in files), default=0)

    ordered = sorted(run.plan.placements, key=weight)
    return [outputs_folder(run, placement) / name for placement in ordered]
