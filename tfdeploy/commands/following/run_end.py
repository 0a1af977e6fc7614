"""How a stop left a run: kept in its folder on the controller, for pages about runs that were not
collected since."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tfdeploy.shared.records import ENDED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdeploy.own_folder import OwnFolder
    from tfdeploy.run import Run

FILE = "stopped.json"
MAX_BYTES = 16 << 20


def save(run: Run, states: Mapping[str, str]) -> None:
    """Write the states in which a stop left the tasks. A run whose folder can't be written is
    stopped all the same."""
    document = {"at": time.time(), "launched": run.launched, "states": dict(states)}
    with suppress(OSError):
        run.open().write(FILE, [f"{json.dumps(document)}\n".encode()])


def read(folder: OwnFolder, launched: str) -> tuple[float, dict[str, str]]:
    """Return when the run of a folder was last stopped, by the controller's clock, and the states
    of its tasks that had ended; none if it was not stopped, or `launched` again."""
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        document: dict[str, Any] = json.loads(folder.read(FILE, MAX_BYTES))
        if document["launched"] == launched:
            states = {task: state for task, state in document["states"].items() if state in ENDED}
            return float(document["at"]), states
    return 0.0, {}
