"""Send a release to the hosts that lack it: each host gets all of it, or nothing visible."""

from __future__ import annotations

import tempfile
import warnings
from contextlib import ExitStack, suppress
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

from tfdeploy.errors import AgentError, HostError, Note, TfdeployError, TransferFailed, raise_all
from tfdeploy.formatting.humanize import escape_line, format_count
from tfdeploy.hosts.agent_session import BULK, query
from tfdeploy.hosts.fleet import errors_of
from tfdeploy.shared.filesystem import NO_SPACE
from tfdeploy.shared.protocol.releases import (
    AbandonRelease,
    FindRelease,
    ListMissing,
    MissingFiles,
    ReceiveFiles,
    ReceiveLastFiles,
)
from tfdeploy.transfer import shared_directory
from tfdeploy.transfer.pack import FileVanished, PackCache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.byte_progress import Transfer
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.release.snapshot import Release
    from tfdeploy.shared.protocol.message import Request
    from tfdeploy.transfer.pack import Pack
    from tfdeploy.transfer.relay import Relay

    OnBytes = Callable[[int], None]
    OnFraction = Callable[[float], None]

A = TypeVar("A")
RELEASE_TIMEOUT_S = 600.0  # for many small files, besides the time to read all bytes
MIN_READ_BYTES_PER_S = (
    20 << 20
)  # of the slowest disk that the timeout allows for, to compare what it has
# Bytes of small files that are packed into one temporary file on the controller: a release may be
# larger than the controller's free disk space.
PORTION = 64 << 20
# From this size on, and for more than DIRECT_HOSTS hosts, a release is relayed from host to host.
RELAY_BYTES = 16 << 20
DIRECT_HOSTS = 2


def send(
    fleet: Fleet,
    project: str,
    release: Release,
    hosts: Iterable[str],
    on_wait: Callable[[list[str]], None] = lambda waiting: None,
    *,
    what: str = "",
) -> dict[str, bool]:
    """Send `release` to those of the hosts that lack it; return for each whether it was sent there.
    Of hosts that share a file system, one receives it.

    The fleet's transfers show how far it is, and `what` is sent. `on_wait` gets the hosts that take
    longer than the others. Raises the errors of all hosts.
    """
    names = list(hosts)
    groups = shared_directory.group_by_store(fleet.inventory, names)
    shared_directory.refuse_unshared(fleet, groups)
    with ExitStack() as stack:
        claims = stack.enter_context(shared_directory.DirectoryClaims())
        sender = _ReleaseSender(project, release, claims)
        if fleet.inventory.source.relay and len(groups) > DIRECT_HOSTS:
            sender.relay_if_large(fleet, stack)

        def send_to(agent: Agent) -> bool:
            with fleet.transfers.begin(f"to {agent.host}", release.size) as transfer:
                return sender.send_to(agent, transfer, lambda arrived: transfer(what, arrived))

        def report(outcomes: Mapping[str, object]) -> None:
            on_wait([host for host in groups if host not in outcomes])

        lacked = fleet.outcomes(groups, send_to, on_wait=report)
        raise_all(errors_of(lacked))

    shared_directory.verify_release(fleet, project, release.id, groups)
    return {host: lacked.get(host) is True for host in names}


class _ReleaseSender:
    """One release for many hosts: requests and packs that are the same for all are made once."""

    def __init__(
        self,
        project: str,
        release: Release,
        claims: shared_directory.DirectoryClaims,
    ) -> None:
        self._request = {"project": project, "release": release.id}
        self._relay: Relay | None = None
        self._claims = claims
        self._release = release
        self._paths = list(release.manifest)
        self._timeout_s = RELEASE_TIMEOUT_S + release.size / MIN_READ_BYTES_PER_S
        self._packs = PackCache(release)
        self._offer = query(FindRelease(**self._request))
        manifest = {path: list(entry) for path, entry in release.manifest.items()}
        self._lacks = query(ListMissing(**self._request, manifest=manifest))

    def relay_if_large(self, fleet: Fleet, stack: ExitStack) -> None:
        """Let hosts send a large release on; `stack` ends that."""
        if self._release.size >= RELAY_BYTES:
            from tfdeploy.transfer.relay import Relay  # imports cryptography

            self._relay = Relay(fleet.inventory, self._request)
            stack.callback(self._relay.close)

    def send_to(self, agent: Agent, transfer: Transfer, on_arrived: OnBytes) -> bool:
        """Send the release to one host; return whether the host lacked it."""
        offer = agent.ask_encoded(self._offer)
        self._claims.claim(agent, offer.here)
        lacked = not offer.present
        if offer.changed:
            note = f"release {self._release.id} was changed on {agent.host}, and is sent again"
            warnings.warn(f"{note}: {escape_line(offer.changed)}", Note, stacklevel=2)
        if lacked:
            try:
                self._deliver(agent, transfer, on_arrived)
            except (TransferFailed, AgentError) as error:
                # Two pushes of one release use the same folder; the faster one moves it away.
                if not agent.ask_encoded(self._offer).present:
                    raise self._abandon_if_disk_full(agent, error) from None
        elif self._relay:
            self._relay.add_source(agent)
        return lacked

    def _deliver(self, agent: Agent, transfer: Transfer, on_arrived: OnBytes) -> None:
        """Send what the host lacks, from another host or from the controller."""
        lacking = self._ask_lacking(agent)
        if lacking.present:
            return
        lacking_bytes = self._total_size(lacking.wanted)
        transfer.skip(self._release.size - lacking_bytes)
        if self._relay and lacking_bytes >= RELAY_BYTES:
            self._relay.deliver(agent, lambda: self._send(agent, on_arrived))
        else:
            self._send(agent, on_arrived, lacking)

    def _send(self, agent: Agent, on_arrived: OnBytes, lacking: MissingFiles | None = None) -> None:
        """Send what the host lacks from the controller.

        rsync overlooks a change that keeps a file's size and time, so a second round compares
        contents. What still differs then has changed on the controller since it was hashed.
        """
        wrong: list[str] = []
        for checksum in (False, True):
            lacking = lacking or self._ask_lacking(agent)
            if lacking.present:
                return
            small = self._send_large_files(agent, lacking, checksum, on_arrived)
            *portions, last = self._portions(small, on_arrived)
            for indices, on_fraction in portions:
                pack = self._pack(agent, indices)
                self._put(agent, ReceiveFiles(**self._request, size=pack.size), pack, on_fraction)
            pack = self._pack(agent, last[0])
            self._refuse_changed_files(agent, lacking.wanted)
            take = ReceiveLastFiles(**self._request, size=pack.size)
            wrong = self._put(agent, take, pack, last[1]).wrong
            if not wrong:
                return
            lacking = None
        raise _changed_files(agent.host, wrong)

    def _total_size(self, indices: Iterable[int]) -> int:
        return sum(self._release.sizes[self._paths[index]] for index in indices)

    def _ask_lacking(self, agent: Agent) -> MissingFiles:
        """Return the host's answer to `lacks`, whose `wanted` are positions in the manifest."""
        answer = agent.ask_encoded(self._lacks, self._timeout_s)
        if any(index not in range(len(self._paths)) for index in answer.wanted):
            raise AgentError(agent.host, "it asked for files that are not in the release")
        return answer

    def _send_large_files(
        self, agent: Agent, lacking: MissingFiles, checksum: bool, on_arrived: OnBytes
    ) -> list[int]:
        """Send the large files by rsync, which sends only differences and resumes an interrupted
        transfer; return the positions of the small ones."""
        sizes, wanted = self._release.sizes, lacking.wanted
        small = [index for index in wanted if sizes[self._paths[index]] < BULK]
        large = [self._paths[index] for index in wanted if sizes[self._paths[index]] >= BULK]
        if large:
            before = self._release.size - self._total_size(wanted)
            agent.transport.push(
                self._release.root,
                lacking.incoming,
                large,
                base=lacking.base,
                checksum=checksum,
                on_progress=lambda file, arrived: on_arrived(before + arrived),
            )
        return small

    def _portions(
        self, small: Sequence[int], on_arrived: OnBytes
    ) -> list[tuple[list[int], OnFraction]]:
        """Divide the small files into portions, at least one, each with a callback for the fraction
        of it that was sent. All other files of the release have arrived by then."""
        portions: list[list[int]] = [[]]
        sizes = [0]
        for index in small:
            size = self._total_size([index])
            if sizes[-1] + size > PORTION and portions[-1]:
                portions.append([])
                sizes.append(0)
            portions[-1].append(index)
            sizes[-1] += size
        begins = accumulate(sizes, initial=self._release.size - sum(sizes))
        callbacks = [_on_fraction(on_arrived, begin, size) for begin, size in zip(begins, sizes)]  # noqa: B905
        return list(zip(portions, callbacks, strict=True))

    def _put(self, agent: Agent, request: Request[A], pack: Pack, on_fraction: OnFraction) -> A:
        return agent.ask_encoded(
            query(request), self._timeout_s, lambda: _blocks(pack, on_fraction)
        )

    def _pack(self, agent: Agent, indices: list[int]) -> Pack:
        try:
            return self._packs.get(indices)
        except FileVanished as vanished:
            raise _changed_files(agent.host, [vanished.path]) from None
        except OSError as error:
            raise TransferFailed(
                agent.host,
                f"can't pack its files in {tempfile.gettempdir()} on the controller: "
                f"{error.strerror}",
                "free some space there, or set TMPDIR to another folder",
            ) from None

    def _refuse_changed_files(self, agent: Agent, wanted: Sequence[int]) -> None:
        """Delete what has arrived and raise TransferFailed if a file changed while it was sent.

        A release that is compared by time has no hash by which the host could notice it.
        """
        changed = self._release.changed_files(self._paths[index] for index in wanted)
        if changed:
            agent.ask(AbandonRelease(**self._request))
            raise _changed_files(agent.host, changed)

    def _abandon_if_disk_full(self, agent: Agent, error: HostError) -> HostError:
        """Delete what has arrived if the disk is full: the trainings on the host need the space.

        After any other failure it stays, and the next push continues with it. Return the error to
        raise.
        """
        if not any(words in error.message for words in NO_SPACE):
            return error
        with suppress(TfdeployError):
            agent.ask(AbandonRelease(**self._request))
        return error.with_hint(
            "tfdeploy runs shows what uses the space on the hosts, tfdeploy prune deletes old runs "
            "and releases"
        )


def _on_fraction(on_arrived: OnBytes, begin: int, size: int) -> OnFraction:
    return lambda fraction: on_arrived(begin + int(fraction * size))


def _blocks(pack: Pack, on_fraction: OnFraction) -> Iterator[memoryview]:
    """Yield the blocks of a pack, and report after each the fraction that was sent."""
    sent = 0
    for block in pack.blocks():
        yield block
        sent += len(block)
        on_fraction(sent / pack.size)


def _changed_files(host: str, paths: Sequence[str]) -> TransferFailed:
    others = f" and {format_count(len(paths) - 1, 'other file')}" if len(paths) > 1 else ""
    return TransferFailed(
        host,
        f"{paths[0]}{others} changed during the push",
        "push again when nothing writes to the folder, or exclude the files that are written",
    )
