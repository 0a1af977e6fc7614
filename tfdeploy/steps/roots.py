"""No two hosts may have one folder: what a host finds in it is its own tasks, which it may end."""

from __future__ import annotations

import secrets
import threading
from typing import TYPE_CHECKING

from tfdeploy.errors import TransferFailed

if TYPE_CHECKING:
    from tfdeploy.remote import Agent


class Roots:
    """Which host has which folder, by the name that the folder itself has."""

    def __init__(self) -> None:
        self._owners: dict[str, Agent] = {}
        self._in_turn = threading.Lock()

    def claim(self, agent: Agent, name: str) -> None:
        """Raises TransferFailed where another host has it, or is the same machine. A folder that is
        but a copy of another's, as in a machine's image, gets a name of its own."""
        with self._in_turn:
            first = self._owners.setdefault(name, agent)
            if first is agent:
                return
            if not _is_seen_by_both(first, agent):
                own = str(agent.ask("rename", {}).get("here"))
                self._owners[own] = agent
                return
        raise TransferFailed(
            agent.host,
            f"its {agent.root} is {first.host}'s as well: they share a file system",
            "give each host a directory of its own, with this under [defaults]: "
            f'directory = "{agent.root}/{{host}}" (a local disk is faster still); '
            "a machine with two names needs but one",
        )


def _is_seen_by_both(one: Agent, other: Agent) -> bool:
    word = {"word": secrets.token_hex(8)}
    try:
        one.ask("mark", word)
        return not other.ask("mark", word).get("made")
    finally:
        for agent in (one, other):
            agent.ask("unmark", word)
