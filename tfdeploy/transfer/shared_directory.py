"""Refuse hosts that share a directory unknowingly: each would take the other's tasks for its
own."""

from __future__ import annotations

import secrets
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from tfdeploy.agent.protocol.releases import Mark, Rename, Unmark
from tfdeploy.errors import TfdeployError, TransferFailed

if TYPE_CHECKING:
    from tfdeploy.hosts.agent_client import Agent

TIMEOUT_S = 10.0


class DirectoryClaims:
    """Which host owns which directory, by the id that the directory itself has.

    Two directories with the same id are one, or one is a copy of the other. So both hosts create
    the same mark, which only one of them can do in a shared directory. On exit the marks are
    removed.
    """

    def __init__(self) -> None:
        self._mark = secrets.token_hex(8)
        self._owners: dict[str, Agent] = {}
        self._marked: list[Agent] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self._marked:
            with suppress(TfdeployError):
                agent.ask(Unmark(self._mark), TIMEOUT_S)

    def claim(self, agent: Agent, directory_id: str) -> None:
        """Record that the host owns this directory.

        Raises TransferFailed if another host has the same directory. A copy of it, for example on
        machines that were cloned from one image, gets a new id. Raises HostError if the host does
        not answer.
        """
        with self._lock:
            owner = self._owners.setdefault(directory_id, agent)
            if owner is agent:
                return
            with suppress(TfdeployError):  # if the host is gone, its own error is reported
                self._first_marked_by(owner)
            first = self._first_marked_by(agent)
            if first == agent.host:
                new_id = agent.ask(Rename(), TIMEOUT_S).here
                self._owners[new_id] = agent
                return
        raise TransferFailed(
            agent.host,
            f"its directory {agent.store} is also the directory of {first}: "
            "they share a file system",
            "write shared_fs = true under [defaults]; or give each host its own directory: "
            f'directory = "{agent.store}/{{host}}" (a local disk is faster); '
            "if both names are one machine, list it once",
        )

    def _first_marked_by(self, agent: Agent) -> str:
        """Create the mark in the host's directory; return the host that created it first."""
        if agent not in self._marked:
            self._marked.append(agent)
        return agent.ask(Mark(self._mark, agent.host), TIMEOUT_S).by
