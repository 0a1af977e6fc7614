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
    from tfdeploy.shared.protocol.preflight import MeasuredLink

    Pair = tuple[str, str]  # a host that connects, and one that listens

MAX_ROUNDS = 32
SLOW = 0.5  # of the median
FULL = 0.6  # of what a card can do: then the card is why it is not faster
BITS = 8


@dataclass(frozen=True)
class Link:
    """A measured link between two hosts whose tasks talk to each other."""

    host: str
    """The host that connected."""
    peer: str
    """The host that listened."""
    address: str
    """The address of `peer` that tasks use."""
    sent_bits_s: float | None
    """How many bits a second `host` sent to `peer`; null if it could not be measured."""
    received_bits_s: float | None
    """How many bits a second `host` received from `peer`."""
    round_trip_s: float | None
    """The seconds of a round trip."""
    interface: str | None
    """The interface of `host`; null for loopback."""
    interface_bits_s: float | None
    """The speed at which its card runs; null if it does not say."""
    peer_interface: str | None
    """The interface of `peer`; null for loopback."""
    peer_interface_bits_s: float | None
    """The speed at which its card runs; null if it does not say."""
    error: str | None
    """Why it could not be measured."""

    @property
    def directions(self) -> list[Direction]:
        """Return both directions, the slower one first; none if nothing was measured."""
        if self.sent_bits_s is None or self.received_bits_s is None:
            return []
        own = LinkEnd(self.host, self.interface or "loopback", self.interface_bits_s)
        peer = LinkEnd(self.peer, self.peer_interface or "loopback", self.peer_interface_bits_s)
        both = [Direction(own, peer, self.sent_bits_s), Direction(peer, own, self.received_bits_s)]
        return sorted(both, key=lambda direction: direction.bits_s)

    @property
    def slowest_bits_s(self) -> float:
        """Return the rate of the slower direction; 0 if it was not measured."""
        return min((each.bits_s for each in self.directions), default=0.0)


@dataclass(frozen=True)
class LinkEnd:
    """One end of a link. `card_bits_s` is None if the card does not say at which speed it runs."""

    host: str
    interface: str
    card_bits_s: float | None

    @property
    def words(self) -> str:
        return f"{self.interface} of {self.host} runs at {format_bit_rate(self.card_bits_s or 0)}"


@dataclass(frozen=True)
class Direction:
    """What one end sends to the other, in bits per second."""

    source: LinkEnd
    target: LinkEnd
    bits_s: float

    @property
    def words(self) -> str:
        return f"{self.source.host} → {self.target.host}: {format_bit_rate(self.bits_s)}"

    @property
    def slow_card(self) -> LinkEnd | None:
        """Return the end whose card can do no more; None if no card says that it can't."""
        slowest = min((self.source, self.target), key=lambda end: end.card_bits_s or math.inf)
        limit = slowest.card_bits_s
        return slowest if limit and self.bits_s > FULL * limit else None

    @property
    def has_slower_card(self) -> bool:
        """Return whether one of the cards runs at less than half of the speed of the other."""
        cards = [end.card_bits_s for end in (self.source, self.target) if end.card_bits_s]
        return len(cards) > 1 and min(cards) < SLOW * max(cards)


def measured(pair: Pair, address: str, found: MeasuredLink) -> Link:
    """Return what a host answered."""
    own, peer = found.own, found.peer
    return Link(
        *pair,
        address,
        found.sent * BITS,
        found.received * BITS,
        found.round_trip_s,
        escape_line(own.name) or None,
        _bits_s(own.megabits_per_s),
        escape_line(peer.name) or None,
        _bits_s(peer.megabits_per_s),
        None,
    )


def _bits_s(megabits_per_s: int | None) -> float | None:
    return megabits_per_s * 1e6 if megabits_per_s and megabits_per_s > 0 else None


def not_measured(pair: Pair, address: str, error: str) -> Link:
    return Link(*pair, address, *(None,) * 7, error)


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
    """Yield a sentence with figures about the slowest link, if it is slower than the others or than
    one of its cards, and about each that could not be measured."""
    for link in links:
        if link.error:
            yield HostError(link.host, f"its link to {link.peer} was not measured: {link.error}")
    directions = sorted(
        chain.from_iterable(link.directions for link in links), key=lambda each: each.bits_s
    )
    if not directions:
        return
    slowest, usual = directions[0], median(each.bits_s for each in directions)
    card, words = slowest.slow_card, slowest.words
    is_slow = slowest.bits_s < SLOW * usual
    if is_slow:
        words += f", the median of all links is {format_bit_rate(usual)}"
    if card and (is_slow or slowest.has_slower_card):
        yield HostError(card.host, f"{words}; {card.words}")
    elif is_slow:
        words += _in_common([each for each in directions if each.bits_s < SLOW * usual], directions)
        yield HostError(slowest.source.host, words, _fast_cards(slowest))


def _in_common(slow: Sequence[Direction], all_: Sequence[Direction]) -> str:
    """Return which host takes part in all slow directions, and in no fast one."""
    if len(slow) < 2:
        return ""
    fast = {end.host for each in all_ if each not in slow for end in (each.source, each.target)}
    common = set.intersection(*({each.source.host, each.target.host} for each in slow)) - fast
    return f"; {min(common)} is slow with each of its peers" if common else ""


def _fast_cards(direction: Direction) -> str:
    said = [end.words for end in (direction.source, direction.target) if end.card_bits_s]
    return f"{' and '.join(said)}: look at the cable, the switch and other traffic" if said else ""


def _hosts_of(plan: Plan, jobs: Collection[str]) -> list[str]:
    return list(dict.fromkeys(p.host for p in plan.placements if p.task.job in jobs))
