"""How what a task wrote arrives on the controller: `hold`, fetch, verify, install, `end_hold`.

Checkpoints, outputs, single files and replicas take this way; they differ in where they arrive.
What a host holds does not change, so each file arrives whole and verified, or not at all. Event
files and logs grow: nobody holds them (events_and_logs.py).

If a fetch fails, its session is closed, and the agent, which exits then, ends the hold.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from tfdeploy.hosts.agent_session import BULK
from tfdeploy.results.fetch import HOLD_TIMEOUT_S, FileFetch, announced, check_free_space
from tfdeploy.results.held_files import HeldFiles
from tfdeploy.shared.protocol.outputs import EndHold

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdeploy.folders.own_folder import OwnFolder
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.pipeline import Pipeline, Steps
    from tfdeploy.shared.protocol.outputs import HashedFile, Held, HeldUnit, Hold


class Destination:
    """Where units arrive: first in the folder `incoming`, in which a later fetch finds what an
    interrupted one has left, then in their place."""

    note = ""
    """What their host does meanwhile."""

    def __init__(self, incoming: OwnFolder) -> None:
        self.incoming = incoming

    def check(self, held: Held) -> None:
        """Raise AgentError unless the host holds what was requested, under names that stay in their
        folder."""
        raise NotImplementedError

    def lacking(self, unit: HeldUnit) -> Sequence[HashedFile]:
        """Return the files of a unit that have to arrive."""
        return unit.files

    def take(self, file: HashedFile) -> bool:
        """Take a file that the controller has elsewhere; return whether there is one."""
        return False

    def groups(self, units: Sequence[HeldUnit]) -> Sequence[Sequence[HeldUnit]]:
        """Return the units in groups: each is installed as soon as it has arrived."""
        return [units]

    def install(self, units: Sequence[HeldUnit], files: Sequence[HashedFile], held: Held) -> None:
        """Move the `files` of units, which have arrived, to their place. Raises OSError."""
        raise NotImplementedError

    def refuse(self, damaged: Mapping[str, str]) -> None:
        """Take note of how files, which were deleted, differ from what their host reported."""
        raise NotImplementedError


def fetch_held(pipeline: Pipeline, request: Hold, to: Destination) -> Steps[Held]:
    """Fetch what a host holds; return it. Raises as `FileFetch` and `HeldFiles.fetch` do.

    If all files are small they are requested in the pipeline, otherwise they come over a connection
    of their own.
    """
    agent = pipeline.agent
    reply = pipeline.send(request, HOLD_TIMEOUT_S)
    yield
    with agent.transfers.begin(agent.host, note=to.note):
        held = reply.answer()
    to.check(held)
    end, groups = EndHold([held.folder]), to.groups(held.units)
    lacking = [[file for unit in units for file in to.lacking(unit)] for units in groups]
    absent, incoming = _absent(agent, [*chain(*lacking)], to)
    small = absent if sum(absent.values()) <= BULK else {}
    fetch = FileFetch(pipeline, held.folder, incoming, [*small], sum(small.values()))
    if small == absent:
        pipeline.send(end)
    yield
    fetch.receive()
    large = HeldFiles(agent, incoming)
    for units, files in zip(groups, lacking, strict=True):
        if small != absent:
            large.complete(held.folder, {f.path: f for f in files if f.path in absent})
            if units is groups[-1]:
                pipeline.send(end)
                pipeline.flush()
        to.refuse(large.remove_damaged(files))
        to.install(units, files, held)
    incoming.delete()
    return held


def _absent(
    agent: Agent, lacking: Sequence[HashedFile], to: Destination
) -> tuple[dict[str, int], OwnFolder]:
    """Return the sizes of the files that have to be fetched, by path, and the folder in which there
    is room for them."""
    incoming = to.incoming.within(announced(sum(file.size for file in lacking)))
    absent = {file.path: file.size for file in lacking if not to.take(file)}
    check_free_space(agent, incoming, absent)
    return absent, incoming
