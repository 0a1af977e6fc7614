"""`tfdeploy push`: releases on the hosts that need them, each whole or not at all."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from tfdeploy.errors import AgentError, HostError, TfdeployError, TransferFailed
from tfdeploy.payload import Payloads, Vanished
from tfdeploy.session import question
from tfdeploy.steps.roots import Roots

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tfdeploy.fleet import Fleet
    from tfdeploy.payload import Payload
    from tfdeploy.release import Release
    from tfdeploy.remote import Agent
    from tfdeploy.session import Answer
    from tfdeploy.steps.plan import Intent
    from tfdeploy.steps.relay import Relay

    OnProgress = Callable[[str, float], None]
    OnShare = Callable[[float], None]
    OnFailed = Callable[[TfdeployError], None]

TAKE_TIMEOUT_S = 600.0
SLOW_DISK = 20 << 20  # bytes a second, at which a host can surely read what it has to compare
NO_SPACE = ("No space left on device", "Disk quota exceeded")
# A file of this many bytes goes by rsync: it sends only what differs, and goes on where it broke
# off. All smaller ones go in one stream over the connection that there is.
BULK = 8 << 20
# So many bytes of these at a time are packed into a file here: it must not need a disk of its own.
PORTION = 64 << 20
# From so many bytes on, for more than a few hosts, it goes from host to host.
RELAYED = 16 << 20
FEW = 2


def push(
    fleet: Fleet,
    intent: Intent,
    on_progress: OnProgress = lambda host, share: None,
    on_failed: OnFailed = lambda error: None,
) -> dict[str, dict[str, bool]]:
    """The source to every host, each data set to those that may read it. For each release, by its
    id, what `send` gives; raises as it does."""
    project, source = intent.inventory.project, intent.release
    outcome = {source.id: send(fleet, project, source, fleet.agents, on_progress, on_failed)}
    for place, data in intent.data.items():
        readers = intent.readers(place)
        outcome[data.id] = send(fleet, project, data, readers, on_progress, on_failed)
    return outcome


def send(
    fleet: Fleet,
    project: str,
    release: Release,
    hosts: Iterable[str],
    on_progress: OnProgress = lambda host, share: None,
    on_failed: OnFailed = lambda error: None,
) -> dict[str, bool]:
    """Send `release` to those of the hosts that lack it; for each whether anything was sent.

    `on_progress(host, share)` and `on_failed(error)` are called from several threads as things
    happen. Raises the errors of all hosts.
    """
    names = list(hosts)
    with ExitStack() as ending:
        sending = _Sending(project, release, ending.enter_context(Roots()))
        if fleet.inventory.source.relay and len(names) > FEW and release.size >= RELAYED:
            from tfdeploy.steps.relay import Relay  # loads cryptography

            sending.relay = Relay(fleet.inventory, sending.named)
            ending.callback(sending.relay.end)

        def one(agent: Agent) -> bool:
            return sending.to(agent, lambda share: on_progress(agent.host, share))

        return fleet.each(names, one, on_failed)


class _Sending:
    """One release on its way to many hosts: what is the same for all of them is made once."""

    def __init__(self, project: str, release: Release, roots: Roots) -> None:
        self.named = {"project": project, "release": release.id}
        self.relay: Relay | None = None
        self._roots = roots
        self._release = release
        self._paths = list(release.manifest)
        self._patience_s = TAKE_TIMEOUT_S + release.size / SLOW_DISK
        self._payloads = Payloads(release)
        self._offer = question("offer", self.named)
        manifest = {path: list(entry) for path, entry in release.manifest.items()}
        self._lacks = question("lacks", {**self.named, "manifest": manifest})

    def to(self, agent: Agent, on_share: OnShare) -> bool:
        """Whether anything had to be sent."""
        offered = agent.put(self._offer)
        self._roots.claim(agent, str(offered["here"]))
        missing = not offered["present"]
        if missing:
            try:
                self._bring(agent, on_share)
            except (TransferFailed, AgentError) as error:
                # Two pushes of one release share a folder, and the faster one takes it away.
                if not agent.put(self._offer)["present"]:
                    self._make_room(agent, error)
                    raise
        elif self.relay:
            self.relay.has(agent)
        on_share(1.0)
        return missing

    def _bring(self, agent: Agent, on_share: OnShare) -> None:
        lacking = self._lacking(agent)
        if lacking["present"]:
            return
        lacked = sum(self._release.sizes[self._paths[index]] for index in lacking["wanted"])
        if self.relay and lacked >= RELAYED:
            self.relay.bring(agent, lambda: self._send(agent, on_share))
        else:
            self._send(agent, on_share, lacking)

    def _send(self, agent: Agent, on_share: OnShare, lacking: Answer | None = None) -> None:
        """From home. Equal size and time can hide a change from rsync: then once more by content.
        What still differs has changed here since it was hashed."""
        wrong: list[str] = []
        for checksum in (False, True):
            lacking = lacking or self._lacking(agent)
            if lacking["present"]:
                return
            small = self._send_bulk(agent, lacking, checksum, on_share)
            *first, last = self._portions(small, on_share)
            for portion, told in first:
                self._put(agent, "add", self._packed(agent, portion), told)
            payload = self._packed(agent, last[0])
            self._refuse_changed(agent, lacking["wanted"])
            wrong = self._put(agent, "take", payload, last[1])["wrong"]
            if not wrong:
                return
            lacking = None
        raise _changed(agent.host, wrong[0], len(wrong) - 1)

    def _lacking(self, agent: Agent) -> Answer:
        """A host may lie, but not about what there is."""
        answer = agent.put(self._lacks, self._patience_s)
        wanted, all_of_them = answer.get("wanted", []), range(len(self._paths))
        if any(not isinstance(index, int) or index not in all_of_them for index in wanted):
            raise AgentError(agent.host, "it lacks what is not in the release")
        return answer

    def _send_bulk(
        self, agent: Agent, lacking: Answer, checksum: bool, on_share: OnShare
    ) -> list[int]:
        """Sends the big ones; the positions of those that are left."""
        sizes, wanted = self._release.sizes, lacking["wanted"]
        small = [index for index in wanted if sizes[self._paths[index]] < BULK]
        big = [self._paths[index] for index in wanted if sizes[self._paths[index]] >= BULK]
        if big:
            agent.transport.push(
                self._release.root,
                lacking["incoming"],
                big,
                base=lacking.get("base"),
                checksum=checksum,
                on_progress=on_share,
            )
        return small

    def _portions(self, small: Sequence[int], on_share: OnShare) -> list[tuple[list[int], OnShare]]:
        """What is packed together, at least one; and whom to tell how much of it has left."""
        portions: list[list[int]] = [[]]
        filled = 0
        for index in small:
            filled += self._release.sizes[self._paths[index]]
            if filled > PORTION and portions[-1]:
                portions.append([])
                filled = self._release.sizes[self._paths[index]]
            portions[-1].append(index)
        shares = (_portion_of(on_share, done, len(portions)) for done in range(len(portions)))
        return list(zip(portions, shares, strict=True))

    def _put(self, agent: Agent, verb: str, payload: Payload, on_share: OnShare) -> Answer:
        asked = question(verb, {**self.named, "size": payload.size})
        return agent.put(asked, self._patience_s, lambda: _told(payload, on_share))

    def _packed(self, agent: Agent, small: list[int]) -> Payload:
        try:
            return self._payloads.of(small)
        except Vanished as gone:
            raise _changed(agent.host, gone.path, 0) from None
        except OSError as error:
            raise TransferFailed(
                agent.host,
                f"it can't be packed in {tempfile.gettempdir()} here: {error.strerror}",
                "make room there, or set TMPDIR to another folder",
            ) from None

    def _refuse_changed(self, agent: Agent, wanted: Sequence[int]) -> None:
        """What is named by its time may have become another while it was read, and none can tell
        that there: so nothing of it stays."""
        changed = self._release.changed(self._paths[index] for index in wanted)
        if changed:
            agent.ask("abandon", self.named)
            raise _changed(agent.host, changed[0], len(changed) - 1)

    def _make_room(self, agent: Agent, error: HostError) -> None:
        """What arrived of a push that the network broke helps the next one; on a full disk it is
        only in the way of what trains there."""
        if any(words in error.message for words in NO_SPACE):
            error.hint = "tfdeploy prune makes room there, tfdeploy runs shows who takes it"
            with suppress(TfdeployError):
                agent.ask("abandon", self.named)


def _portion_of(on_share: OnShare, done: int, portions: int) -> OnShare:
    return lambda share: on_share((done + share) / portions)


def _told(payload: Payload, on_share: OnShare) -> Iterator[memoryview]:
    """The payload; how much of it has left is told on the way."""
    sent = 0
    for part in payload.parts():
        yield part
        sent += len(part)
        on_share(sent / payload.size)


def _changed(host: str, path: str, more: int) -> TransferFailed:
    return TransferFailed(
        host,
        f"{path} changed while it was pushed (and {more} more)",
        "push again when nothing writes into the source folder, or exclude what is written",
    )
