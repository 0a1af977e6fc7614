"""How the agent says no: one sentence of what was found, and what to do about it."""

from __future__ import annotations


class Refusal(Exception):
    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
