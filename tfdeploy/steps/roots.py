"""No two hosts may have one folder: what a host finds in it is its own tasks, which it may end."""

from __future__ import annotations

import secrets
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from tfdeploy.errors import TfdeployError, TransferFailed

if TYPE_CHECKING:
    from tfdeploy.remote import Agent

ANSWER_S = 10.0


class Roots:
    """Which host has which folder, by the name that the folder itself has. Where two have the same
    name, one may be a copy: so each makes the same mark, which in one folder only one can make.
    Leaving it removes the marks."""

    def __init__(self) -> None:
        self._word = secrets.token_hex(8)
        self._owners: dict[str, Agent] = {}
        self._marked: list[Agent] = []
        self._in_turn = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self._marked:
            with suppress(TfdeployError):
                agent.ask("unmark", {"word": self._word}, ANSWER_S)

    def claim(self, agent: Agent, name: str) -> None:
        """Raises TransferFailed where another host has the folder. A copy, as machines have it that
        were made of one image, gets a name of its own. Raises HostError where it can't be asked."""
        with self._in_turn:
            first = self._owners.setdefault(name, agent)
            if first is agent:
                return
            with suppress(TfdeployError):  # it may be gone by now, which is said elsewhere
                self._marked_by(first)
            other = self._marked_by(agent)
            if other == agent.host:
                own = str(agent.ask("rename", {}, ANSWER_S).get("here"))
                self._owners[own] = agent
                return
        raise TransferFailed(
            agent.host,
            f"its {agent.root} is {other}'s as well: they share a file system",
            "give each host a directory of its own, with this under [defaults]: "
            f'directory = "{agent.root}/{{host}}" (a local disk is faster still); '
            "a machine with two names needs but one",
        )

    def _marked_by(self, agent: Agent) -> str:
        """The first host that made the mark where this one looks."""
        if agent not in self._marked:
            self._marked.append(agent)
        body = {"word": self._word, "host": agent.host}
        return str(agent.ask("mark", body, ANSWER_S).get("by"))
