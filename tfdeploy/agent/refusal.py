"""An expected error that the agent reports to the controller."""

from __future__ import annotations

from typing import Any


class Refusal(Exception):
    """The agent can't do what it was asked to.

    `message` is one sentence that says what was found and what was expected; `hint` is a command or
    an edit that helps. `busy` says that the needed port or GPU is in use, and so may become free;
    `held_by` is the run that holds it, or "". `outdated` says that the controller's record of the
    run is older than the host's, `deleted` that the run was deleted from the host, `changing`
    that another controller stops and starts it; `newer` is a run that is newer than the one that
    the controller takes for the newest, or "".
    """

    held_by = newer = ""
    busy = outdated = deleted = changing = False

    def __init__(self, message: str, hint: str = "", **more: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.__dict__.update(more)
