"""Show the chief's other files, beside TensorFlow's checkpoints, to an evaluator on another host.

The evaluator's `checkpoint_dir` is a link to the folder of the replica (replicas.py). The copies of
the chief's other files (output_replicas.py) are hard-linked into it, under the chief's paths.
"""

from __future__ import annotations

import os

from ....shared import TYPE_CHECKING, filesystem, state_file
from ....shared.units import ANY, FOLDER, SAVED_MODEL
from ...outputs import delivery
from . import replicas

if TYPE_CHECKING:
    from ....shared.protocol.outputs import OutputUnit
    from ....shared.records import Launch

INCOMING = ".incoming-links"


def link_unit(launch: Launch, copies: str, unit: OutputUnit) -> None:
    """Link a unit of the folder `copies` into the evaluator's `checkpoint_dir`, if it belongs there
    and is not linked yet. Raises OSError."""
    if not is_below(launch.checkpoint_dir, unit.path):
        return
    paths = [path for path, _, _ in unit.files]
    if all(_is_linked(launch, copies, path) for path in paths):
        return
    incoming = os.path.join(os.path.dirname(copies), INCOMING)
    filesystem.remove_folder(incoming)
    for path in paths:
        target = os.path.join(incoming, _relative(launch, path))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        filesystem.link_or_copy(os.path.join(copies, path), target)
    path, files = _relative(launch, unit.path), [_relative(launch, file) for file in paths]
    # A model may be the whole folder. Other files that the evaluator has there must stay.
    is_everything = path == "." and unit.kind in (FOLDER, SAVED_MODEL)
    kind = ANY if is_everything else unit.kind
    delivery.install_unit(incoming, _folder(launch), path, kind, files)
    filesystem.remove_folder(incoming)


def unlink_file(launch: Launch, copies: str, path: str) -> None:
    """Remove a file from the evaluator's folder, if it is still the copy. Raises OSError."""
    if is_below(launch.checkpoint_dir, path) and _is_linked(launch, copies, path):
        os.remove(os.path.join(_folder(launch), _relative(launch, path)))


def is_below(folder: str, path: str) -> bool:
    """Return whether a file of the chief is in `folder`.

    False for TensorFlow's state file: the replica has its own, which names the checkpoints on this
    host.
    """
    relative = os.path.relpath(path, folder)
    return relative.split("/")[0] != ".." and relative != state_file.STATE


def _folder(launch: Launch) -> str:
    return replicas.replica_dir(launch.project, launch.run)


def _relative(launch: Launch, path: str) -> str:
    return os.path.relpath(path, launch.checkpoint_dir)


def _is_linked(launch: Launch, copies: str, path: str) -> bool:
    """Return whether the evaluator's file is the copy: it may have its own file of this name."""
    try:
        copy = os.stat(os.path.join(copies, path))
        linked = os.stat(os.path.join(_folder(launch), _relative(launch, path)))
    except OSError:
        return False
    return (copy.st_size, copy.st_mtime_ns) == (linked.st_size, linked.st_mtime_ns)
