"""`tfdeploy hosts`: what each host has free, and who uses the rest. Nothing is started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tfdeploy.formatting.short_repr import short_repr
from tfdeploy.hosts.fleet import answers_of, errors_of
from tfdeploy.shared.protocol.reports import HostState, LookAtHost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.errors import TfdeployError
    from tfdeploy.hosts.fleet import Fleet


@dataclass(frozen=True)
class SeenHost:
    """A host, what it has, and who uses it; null without an answer."""

    MERGED: ClassVar = {"state": HostState}

    host: str
    """Its name."""
    state: HostState | None

    @property
    def free_gpus(self) -> int:
        return sum(gpu.free for gpu in self.state.gpus) if self.state else 0

    @property
    def order(self) -> tuple[object, ...]:
        """Return what sorts hosts: more free GPUs first, then less load for each processor."""
        load = self.state.load / max(1, self.state.cpus) if self.state else 0.0
        return (self.state is None, -self.free_gpus, load)


@dataclass(frozen=True)
class SeenHosts:
    """All hosts that were asked, those with most that is free first."""

    __repr__ = short_repr

    hosts: tuple[SeenHost, ...]
    """The hosts."""
    errors: tuple[TfdeployError, ...]
    """Why hosts did not answer."""


def look(fleet: Fleet, hosts: Sequence[str], unreached: Sequence[TfdeployError]) -> SeenHosts:
    """Ask each host; `unreached` are the errors of further ones. Raises nothing."""
    answers = fleet.outcomes(hosts, lambda agent: agent.ask(LookAtHost()))
    states = answers_of(answers)
    found = [SeenHost(host, states.get(host)) for host in answers]
    found += [SeenHost(error.names[-1], None) for error in unreached if error.names]
    in_order = sorted(found, key=lambda each: each.order)
    return SeenHosts(tuple(in_order), (*errors_of(answers), *unreached))
