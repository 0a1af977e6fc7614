"""Distribute a large release: the controller sends it to one host, and hosts send it on.

Each host sends to two others, so the time grows with the logarithm of the number of hosts. A host
that can't fetch it from another host gets it from the controller.
"""

from __future__ import annotations

import datetime
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tfdeploy.config import AUTO_PORTS
from tfdeploy.errors import TfdeployError
from tfdeploy.hosts.agent_session import query
from tfdeploy.shared.protocol.releases import Fetch
from tfdeploy.shared.protocol.releases import Share as ShareRelease

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tfdeploy.config.inventory import Inventory
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.agent_session import Session

SENDS_PER_HOST = 2  # at the same time
CONTROLLER_SENDS = 4  # at the same time, to hosts that can't reach another host
SHARE_TIMEOUT_S = 60.0
FETCH_TIMEOUT_S = 86_400.0  # the agent itself gives up when no data arrives
# Clocks of hosts may be years off. The key is in no file, and is forgotten after the push. The last
# second means that a certificate has no end: RFC 5280, 4.1.2.5.
ALWAYS = datetime.datetime(1970, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59)


@dataclass(frozen=True)
class SharingHost:
    """A host that serves the release on this port until the session is closed."""

    session: Session
    port: int


class Relay:
    """Decide which host sends one release to which other host. Thread-safe."""

    def __init__(self, inventory: Inventory, request: Mapping[str, str]) -> None:
        self._inventory = inventory
        self._request = {**request}
        self._identity = create_identity()
        self._changed = threading.Condition()
        self._free_sources: list[Agent] = []  # a host is listed once for each send it may start
        self._busy_sources = 0
        self._controller_sends = False
        self._controller_slots = threading.Semaphore(CONTROLLER_SENDS)
        self._shares: dict[str, SharingHost] = {}
        self._share_locks = {host.name: threading.Lock() for host in inventory.hosts}
        self._closed = False

    def add_source(self, agent: Agent) -> None:
        """Record that this host has the release and may send it on."""
        with self._changed:
            self._free_sources += [agent] * SENDS_PER_HOST
            self._changed.notify_all()

    def deliver(self, agent: Agent, send: Callable[[], None]) -> None:
        """Have the release sent to this host: by another host, or from the controller by `send`."""
        source = self._wait_for_source()
        if source is None:
            try:
                send()
                # Before the controller is free: otherwise it would send to the next host, too.
                self.add_source(agent)
            finally:
                self._release_controller()
            return
        if not self._fetch_from(agent, source):
            with self._controller_slots:
                send()
        self.add_source(agent)

    def close(self) -> None:
        """End all shares. A thread that a Ctrl-C left running can't start one afterwards."""
        with self._changed:
            self._closed = True
            shares = list(self._shares.values())
        for share in shares:
            share.session.close()

    def _wait_for_source(self) -> Agent | None:
        """Return a host that has the release, as soon as one is free; None for the controller.

        The controller sends to one host at a time, and only while no host has the release.
        """
        with self._changed:
            while True:
                if self._free_sources:
                    self._busy_sources += 1
                    return self._free_sources.pop(0)
                if not self._busy_sources and not self._controller_sends:
                    self._controller_sends = True
                    return None
                self._changed.wait()

    def _release_controller(self) -> None:
        with self._changed:
            self._controller_sends = False
            self._changed.notify_all()

    def _fetch_from(self, agent: Agent, source: Agent) -> bool:
        """Return whether `agent` has fetched the release from `source`. If not, `source` is not
        used again: it may be the cause."""
        fetched = False
        try:
            fetched = self._fetch(agent, source)
        except TfdeployError:
            pass
        finally:
            with self._changed:
                self._busy_sources -= 1
                self._free_sources += [source] if fetched else []
                self._changed.notify_all()
        return fetched

    def _fetch(self, agent: Agent, source: Agent) -> bool:
        with self._share_locks[source.host]:
            share = self._shares.get(source.host) or self._start_share(source)
        address = self._inventory.host(source.host).address or source.host
        request = Fetch(**self._request, address=address, port=share.port, identity=self._identity)
        return not agent.ask(request, FETCH_TIMEOUT_S).wrong

    def _start_share(self, source: Agent) -> SharingHost:
        """Start to serve the release on a host, in a session that is used for nothing else."""
        host = self._inventory.host(source.host)
        # Tasks take the first ports of a host, so the last ones are the most likely to be free.
        ports = [0] if host.ports == AUTO_PORTS else list(reversed(host.ports))
        request = query(ShareRelease(**self._request, ports=ports, identity=self._identity))
        session, answer = source.begin(request, SHARE_TIMEOUT_S)
        port = answer.get("port", 0)
        share = SharingHost(session, port if isinstance(port, int) else 0)
        with self._changed:
            if self._closed or not share.port:
                session.close()
            else:
                self._shares[source.host] = share
        source.parse(request, answer)
        return share


def create_identity() -> str:
    """Return a new private key and its self-signed certificate, in PEM, for one push: the TLS
    identity by which hosts recognize each other while they relay a release."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tfdeploy")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(ALWAYS[0])
        .not_valid_after(ALWAYS[1])
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return (private + certificate.public_bytes(pem)).decode()
