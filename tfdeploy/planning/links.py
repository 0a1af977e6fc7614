"""The links between the hosts of a plan: which to measure, in which order, and which are slow.
Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import TYPE_CHECKING

from tfdeploy.errors import HostError
from tfdeploy.formatting.humanize import escape_line, format_bit_rate

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from tfdeploy.planning.plan import Plan
    from tfdeploy.shared.protocol.preflight import Interface, MeasuredLink

    Pair = tuple[str, str]  # a host that connects, and one that listens

MAX_ROUNDS = 32
SLOW = 0.5  # of the median
FASTER = 1.5
BITS = 8
MEGA = 1e6


@dataclass(frozen=True)
class LinkEnd:
    """One end of a link between two hosts."""

    host: str
    """The host's name."""
    interface: str | None = None
    """Its network interface; null for loopback."""
    card_bits_s: float | None = None
    """The speed of its card."""

    @property
    def words(self) -> str:
        speed = f" at {format_bit_rate(self.card_bits_s)}" if self.card_bits_s else ""
        return f"{self.interface}{speed}" if self.interface else "loopback"


@dataclass(frozen=True)
class Link:
    """One direction of a measured link."""

    source: LinkEnd
    """The end that sent."""
    target: LinkEnd
    """The end that received."""
    bits_s: float | None = None
    """How many bits arrived in a second."""
    round_trip_s: float | None = None
    """The seconds of a round trip."""
    error: str | None = None
    """Why it could not be measured."""

    @property
    def pair(self) -> Pair:
        return self.source.host, self.target.host

    @property
    def hosts(self) -> set[str]:
        return {self.source.host, self.target.host}


def measured(pair: Pair, found: MeasuredLink) -> list[Link]:
    """Return both directions of a link, as the first host of the pair answered."""
    own, peer = _end(pair[0], found.own), _end(pair[1], found.peer)
    return [
        Link(own, peer, found.sent * BITS, found.round_trip_s),
        Link(peer, own, found.received * BITS, found.round_trip_s),
    ]


def not_measured(pair: Pair, error: str) -> list[Link]:
    return [Link(LinkEnd(pair[0]), LinkEnd(pair[1]), error=error)]


def _end(host: str, interface: Interface) -> LinkEnd:
    card = interface.megabits_per_s or 0
    return LinkEnd(host, escape_line(interface.name) or None, card * MEGA if card > 0 else None)


def pairs(plan: Plan, hosts: Collection[str]) -> list[Pair]:
    """Return the pairs of these hosts whose tasks talk to each other, each once: each worker's host
    with those of all ps; without ps, each with the next one, as in a ring."""
    training = [h for h in _hosts_of(plan, ("chief", "worker")) if h in hosts]
    serving = [h for h in _hosts_of(plan, ("ps",)) if h in hosts]
    if "ps" in plan.cluster:
        # First one ps for each worker: if there are too many pairs, each worker has one at least.
        found: Iterable[Pair] = (
            (host, serving[(position + turn) % len(serving)])
            for turn in range(len(serving))
            for position, host in enumerate(training)
        )
    else:
        found = zip(training, [*training[1:], *training[:1]], strict=True)
    unique = {frozenset(pair): pair for pair in found if pair[0] != pair[1]}
    return list(unique.values())


def rounds(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Return the pairs in at most MAX_ROUNDS rounds: in a round each host has one pair."""
    planned: list[list[Pair]] = []
    for pair in pairs:
        for each in planned:
            if not {*pair} & {*chain.from_iterable(each)}:
                each.append(pair)
                break
        else:
            planned.append([pair])
    return planned[:MAX_ROUNDS]


def slow_links(links: Sequence[Link]) -> Iterator[HostError]:
    """Yield a sentence with figures about the slowest link, if it is slower than the others, and
    about each that could not be measured."""
    for link in links:
        if link.error:
            message = f"its link to {link.target.host} was not measured: {link.error}"
            yield HostError(link.source.host, message)
    rates = [link.bits_s for link in links if link.bits_s is not None]
    usual = median(rates) if rates else 0.0
    slow = [link for link in links if link.bits_s is not None and link.bits_s < SLOW * usual]
    if not slow:
        return
    first = min(slow, key=lambda link: link.bits_s or 0)
    fast = [link for link in links if link.bits_s is not None and link not in slow]
    culprit, found = _blame(slow, fast)
    words = [f"{rate_words(first)}, the median of all links is {format_bit_rate(usual)}"]
    words += [f"{end.host} uses {end.words}" for end in (first.source, first.target)]
    words += [found] if found else []
    yield HostError(culprit or first.source.host, "; ".join(words))


def faster_addresses(
    links: Sequence[Link], others: Iterable[tuple[str, Link]]
) -> Iterator[HostError]:
    """Yield the address over which a host is reached FASTER times as fast as over the one that its
    tasks use, if there is one. `others` are links with the addresses that were tried."""
    rates = {link.pair: link.bits_s or 0.0 for link in links}
    best: dict[str, tuple[float, str, Link]] = {}
    for address, link in others:
        rate, known = link.bits_s or 0.0, best.get(link.target.host, (0.0,))[0]
        if rate > max(FASTER * rates.get(link.pair, math.inf), known):
            best[link.target.host] = rate, address, link
    for host, (_, address, link) in best.items():
        used = rates[link.pair]
        words = f"{rate_words(link)} over {link.target.words}"
        was = f"{format_bit_rate(used)} over its address now" if used else "its address fails"
        yield HostError(host, f"{words}, {was}", f'set hosts.{host}.address = "{address}"')


def rate_words(link: Link) -> str:
    rate = "-" if link.bits_s is None else format_bit_rate(link.bits_s)
    return f"{link.source.host} → {link.target.host}: {rate}"


def _blame(slow: Sequence[Link], fast: Sequence[Link]) -> tuple[str, str]:
    """Return the host that takes part in all slow links and in no fast one, and what was measured
    of it and its peers; ("", "") if there is none, or more than one."""
    common = set.intersection(*(link.hosts for link in slow))
    common -= {host for link in fast for host in link.hosts}
    if len(common) != 1:
        return "", ""
    [host] = common
    peers = {each for link in slow for each in link.hosts} - common
    if len(peers) == 1:
        return host, f"{peers.pop()} is faster with others"
    return host, f"{host} is slow with each of {len(peers)} peers"


def _hosts_of(plan: Plan, jobs: Collection[str]) -> list[str]:
    return list(dict.fromkeys(p.host for p in plan.placements if p.task.job in jobs))
