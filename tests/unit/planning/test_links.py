"""Which links between hosts are measured, in which rounds, and what is said about slow ones."""

from __future__ import annotations

from itertools import chain

import pytest
from support.builders import make_plan

from tfdeploy.formatting.humanize import format_bit_rate
from tfdeploy.planning import links
from tfdeploy.shared.protocol.preflight import Interface, MeasuredLink

GBIT_S = 1e9
RING = "".join(f"[hosts.{name}]\nworkers = 1\n" for name in "abcd")
PS = "".join(f"[hosts.{name}]\nps = 1\n" for name in "pq") + RING


def link(pair, sent, received, own=None, peer=None):
    cards = Interface("eth0", own), Interface("eth1", peer)
    return links.measured(tuple(pair), MeasuredLink(sent / 8, received / 8, 1e-4, *cards))


def notes(*measured):
    return [str(note) for note in links.slow_links([*chain.from_iterable(measured)])]


def test_without_ps_the_links_of_a_ring_are_measured():
    found = links.pairs(make_plan(RING), "abcd")
    assert found == [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]


def test_two_hosts_have_one_link_and_one_host_none():
    assert links.pairs(make_plan(RING), "ab") == [("b", "a")]
    assert links.pairs(make_plan(RING), "a") == []


def test_each_worker_is_measured_with_each_ps():
    found = links.pairs(make_plan(PS), "abcdpq")
    assert {*found} == {(worker, ps) for worker in "abcd" for ps in "pq"}
    assert [worker for worker, _ in found[:4]] == [*"abcd"]


def test_a_ps_on_the_host_of_its_worker_needs_no_link():
    plan = make_plan("[hosts.a]\nps = 1\nworkers = 1\n[hosts.b]\nworkers = 1")
    assert links.pairs(plan, "ab") == [("b", "a")]


def test_only_hosts_that_answered_are_measured():
    assert links.pairs(make_plan(PS), "ap") == [("a", "p")]
    assert links.pairs(make_plan(PS), "ab") == []


@pytest.mark.parametrize("hosts", [RING, PS])
def test_in_a_round_each_host_has_one_link(hosts):
    pairs = links.pairs(make_plan(hosts), "abcdpq")
    rounds = links.rounds(pairs)
    assert sorted(chain.from_iterable(rounds)) == sorted(pairs)
    for each in rounds:
        busy = [*chain.from_iterable(each)]
        assert len(busy) == len({*busy})
    assert len(rounds) == (2 if hosts == RING else 4)


def test_the_number_of_rounds_is_limited():
    pairs = [(f"w{worker}", "ps") for worker in range(links.MAX_ROUNDS + 5)]
    assert len(links.rounds(pairs)) == links.MAX_ROUNDS


def test_equal_links_need_no_words():
    assert notes(link("ab", 9.4 * GBIT_S, 9.2 * GBIT_S), link("bc", 9.3 * GBIT_S, 8 * GBIT_S)) == []
    assert notes() == []


FAST = [link(pair, 9.4 * GBIT_S, 9.4 * GBIT_S, 10_000, 10_000) for pair in ("ab", "bc", "ca")]


def test_a_slow_link_is_named_with_its_cards():
    assert notes(*FAST, link("cd", 94e6, 95e6, 10_000, 100)) == [
        "d: c → d: 94 Mbit/s, the median of all links is 9.4 Gbit/s; c uses eth0 at 10.0 Gbit/s; "
        "d uses eth1 at 100 Mbit/s; c is faster with others"
    ]


def test_a_link_that_is_slow_in_one_direction_blames_no_host():
    assert notes(*FAST, link("cd", 9.4 * GBIT_S, 2 * GBIT_S)) == [
        "d: d → c: 2.0 Gbit/s, the median of all links is 9.4 Gbit/s; d uses eth1; c uses eth0"
    ]


def test_a_host_that_is_slow_with_each_peer_is_blamed():
    assert notes(*FAST, link("da", GBIT_S, GBIT_S), link("bd", GBIT_S, GBIT_S))[0].endswith(
        "; d is slow with each of 2 peers"
    )
    assert notes(*FAST, link("de", GBIT_S, GBIT_S))[0].endswith("d uses eth0; e uses eth1")


def test_a_link_that_was_not_measured_blames_no_host():
    dead = links.not_measured(("d", "f"), "no route to host")
    [_, slow] = notes(*FAST, link("de", GBIT_S, GBIT_S), dead)
    assert slow.endswith("d uses eth0; e uses eth1")


def test_a_dead_link_is_reported_with_its_reason():
    dead = links.not_measured(("a", "b"), "no answer within 5 s")
    assert notes(dead) == ["a: its link to b was not measured: no answer within 5 s"]


def test_names_of_interfaces_from_a_host_can_not_forge_lines():
    forged = MeasuredLink(1.0, 1.0, 1e-4, Interface("eth0\nerror"), Interface("", -1))
    there, _ = links.measured(("a", "b"), forged)
    assert there.source.interface == r"eth0\nerror"
    assert (there.target.interface, there.target.card_bits_s) == (None, None)


@pytest.mark.parametrize(
    ("bits_s", "text"),
    [(900, "0.9 kbit/s"), (94e6, "94 Mbit/s"), (1.5e6, "1.5 Mbit/s"), (9.4e9, "9.4 Gbit/s")],
)
def test_bit_rates_are_written_as_people_do(bits_s, text):
    assert format_bit_rate(bits_s) == text


def test_an_address_that_is_much_faster_is_proposed():
    used = [*link("ab", 9.4e7, 9.4e7, 100, 100), *links.not_measured(("c", "a"), "timed out")]
    [fast, back] = link("ab", 9.4 * GBIT_S, 9.4 * GBIT_S, 10_000, 10_000)
    [failed, _] = link("ca", GBIT_S, GBIT_S)
    others = [("10.1.0.2", fast), ("10.1.0.1", back), ("10.1.0.9", failed)]
    first, second = links.faster_addresses(used, others)
    words = "b: a → b: 9.4 Gbit/s over eth1 at 10.0 Gbit/s, 94 Mbit/s over its address now"
    assert str(first).splitlines() == [words, '  set hosts.b.address = "10.1.0.2"']
    assert second.hint == 'set hosts.a.address = "10.1.0.1"'
    [lost] = links.faster_addresses(used[2:], others[2:])
    assert ", its address fails" in str(lost)
    assert [*links.faster_addresses(used, [("10.1.0.2", link("ab", 1.2e8, 1)[0])])] == []
