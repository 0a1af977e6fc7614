"""Record where the program saves outside of the task's directory, so that `collect` can name it.

Every Saver, tf.train.Checkpoint and CheckpointManager writes TensorFlow's `checkpoint` state file
with one function, and every model.save() and save_weights() of Keras calls saving_api. Both are
patched after the program has imported them; this module imports neither.
"""

import functools
import json
import os
import sys
from contextlib import suppress
from types import ModuleType
from typing import Any, List, Set

UPDATE_STATE = "update_checkpoint_state_internal"
MANAGEMENT = (
    "tensorflow.python.checkpoint.checkpoint_management",
    "tensorflow.python.training.checkpoint_management",  # before TensorFlow 2.9
)
MAX_PATHS = 16


class SaveRecord:
    """The newest MAX_PATHS paths, in a file beside the task's directory, which the agent reads."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._work = os.path.join(os.path.realpath(os.path.dirname(file)), "work", "")
        self._known: Set[str] = set()

    def add(self, path: Any) -> None:
        """Record a path. If that is not possible, the program's save succeeds all the same."""
        with suppress(OSError, TypeError, ValueError):  # TypeError: the program saved to an object
            self._add(os.fsdecode(path))

    def _add(self, path: str) -> None:
        resolved = os.path.realpath(path)
        in_work = os.path.join(resolved, "").startswith(self._work)
        if in_work or "://" in path or resolved in self._known:
            return
        self._known.add(resolved)
        # Other processes of the task write to the same file.
        recorded = [other for other in _read(self._file) if other != resolved]
        new_file = "%s.%d" % (self._file, os.getpid())
        with open(new_file, "w", encoding="utf-8") as file:
            json.dump([*recorded, resolved][-MAX_PATHS:], file)
        os.replace(new_file, self._file)


def record_checkpoints(file: str) -> None:
    """Patch the function that every TensorFlow checkpoint calls."""
    for module in _imported(*MANAGEMENT):
        _patch(module, UPDATE_STATE, SaveRecord(file), 0, "save_dir")


def record_keras(file: str) -> None:
    """Patch the functions that save a model of Keras 3."""
    _patch_keras("keras.src.saving.saving_api", file)


def record_tf_keras(file: str) -> None:
    """Patch the functions that save a model of Keras 2."""
    _patch_keras("tf_keras.src.saving.saving_api", file)


def _patch_keras(name: str, file: str) -> None:
    for module in _imported(name):
        record = SaveRecord(file)
        for function in ("save_model", "save_weights"):
            _patch(module, function, record, 1, "filepath")


def _imported(*names: str) -> List[ModuleType]:
    return [sys.modules[name] for name in names if name in sys.modules][:1]


def _patch(module: Any, name: str, record: SaveRecord, position: int, parameter: str) -> None:
    """Let a function of the module record the path that it is called with, after it returned."""
    save = getattr(module, name, None)
    if save is None:
        return

    @functools.wraps(save)
    def save_and_record(*args: Any, **kwargs: Any) -> Any:
        result = save(*args, **kwargs)
        record.add(args[position] if len(args) > position else kwargs.get(parameter))
        return result

    setattr(module, name, save_and_record)


def _read(file: str) -> List[str]:
    try:
        with open(file, encoding="utf-8") as source:
            return [str(path) for path in json.load(source)]
    except (OSError, ValueError, TypeError):
        return []
