"""How the agent says no: one sentence of what was found, and what to do about it."""

from __future__ import annotations


class Refusal(Exception):
    """`held_by` is the run that has what was asked for, where one has."""

    def __init__(self, message: str, hint: str = "", held_by: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.held_by = held_by
