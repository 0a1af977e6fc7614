"""TensorFlow's `checkpoint` state file in runs/<run>/checkpoints/."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.shared import state_file

if TYPE_CHECKING:
    from tfdeploy.own_folder import OwnFolder


def read_state(folder: OwnFolder) -> list[str]:
    """Return the checkpoints that the folder's state file names, newest first; [] without one."""
    try:
        text = folder.read(state_file.STATE, state_file.MAX_CHARACTERS).decode(errors="replace")
    except OSError:
        return []
    return state_file.parse(text)


def write_state(folder: OwnFolder, newest: str) -> None:
    """Name all complete checkpoints of the folder, `newest` as the latest. Raises OSError."""
    files = folder.files()
    by_age = sorted(files, key=lambda name: files[name].st_mtime_ns)
    folder.write(state_file.STATE, [state_file.text(by_age, newest).encode()])
