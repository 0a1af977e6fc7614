"""How a release of many bytes spreads: once from home, then from host to host, each to two others.

So the time grows with the logarithm of the hosts' number, not with the number. Whoever can't get it
from another host is sent it from home.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy import identity
from tfdeploy.errors import TfdeployError
from tfdeploy.fields import AUTO
from tfdeploy.session import question

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfdeploy.inventory import Inventory
    from tfdeploy.remote import Agent
    from tfdeploy.session import Session

AT_ONCE = 2  # to how many a host sends at the same time
HOME_AT_ONCE = 4  # and home, to those that no other host can reach
SHARE_TIMEOUT_S = 60.0
FETCH_TIMEOUT_S = 86_400.0  # the agent itself gives up when nothing moves


@dataclass(frozen=True)
class Share:
    """A host that passes the release on: on this port, for as long as the session lasts."""

    session: Session
    port: int


class Relay:
    """Who sends to whom, while one release is pushed. Several threads ask."""

    def __init__(self, inventory: Inventory, named: Mapping[str, str]) -> None:
        self._inventory = inventory
        self._named = {**named, "identity": identity.made()}
        self._changed = threading.Condition()
        self._free: list[Agent] = []  # a host stands here as often as it may send now
        self._busy = 0
        self._home_sends = False
        self._home = threading.Semaphore(HOME_AT_ONCE)
        self._shares: dict[str, Share] = {}
        self._sharing = {host.name: threading.Lock() for host in inventory.hosts}
        self._ended = False

    def has(self, agent: Agent) -> None:
        """This host has it, and may pass it on."""
        with self._changed:
            self._free += [agent] * AT_ONCE
            self._changed.notify_all()

    def bring(self, agent: Agent, send: Callable[[], None]) -> None:
        """Have it brought to this host: by another one, or by `send` from home."""
        source = self._source()
        if source is None:
            try:
                send()
            finally:
                self._home_rests()
        elif not self._fetched(agent, source):
            with self._home:
                send()
        self.has(agent)

    def end(self) -> None:
        """Nobody passes it on any more: with its agent a share ends. Of what a Ctrl-C left to
        itself none begins one later."""
        with self._changed:
            self._ended = True
            shares = list(self._shares.values())
        for share in shares:
            share.session.close()

    def _source(self) -> Agent | None:
        """Who sends: a host, as soon as one has it. Until then home sends to one at a time."""
        with self._changed:
            while True:
                if self._free:
                    self._busy += 1
                    return self._free.pop(0)
                if not self._busy and not self._home_sends:
                    self._home_sends = True
                    return None
                self._changed.wait()

    def _home_rests(self) -> None:
        with self._changed:
            self._home_sends = False
            self._changed.notify_all()

    def _fetched(self, agent: Agent, source: Agent) -> bool:
        fetched = False
        try:
            fetched = self._fetch(agent, source)
        except TfdeployError:
            pass  # its place is lost: it may be the one that can't
        finally:
            with self._changed:
                self._busy -= 1
                self._free += [source] if fetched else []
                self._changed.notify_all()
        return fetched

    def _fetch(self, agent: Agent, source: Agent) -> bool:
        with self._sharing[source.host]:
            share = self._shares.get(source.host) or self._begun(source)
        where = {"address": self._inventory.host(source.host).address, "port": share.port}
        answer = agent.ask("fetch", {**self._named, **where}, FETCH_TIMEOUT_S)
        return not answer["wrong"]

    def _begun(self, source: Agent) -> Share:
        """One a source, in a session that nobody else is given."""
        host = self._inventory.host(source.host)
        # Tasks take theirs from the first on, so the last ones are the likeliest to be free.
        ports = [0] if host.ports == AUTO else list(reversed(host.ports))
        session, answer = source.begin(
            question("share", {**self._named, "ports": ports}), SHARE_TIMEOUT_S
        )
        share = Share(session, answer.get("port", 0))
        with self._changed:
            if self._ended or not share.port:
                session.close()
            else:
                self._shares[source.host] = share
        source.accepted(answer)
        return share
