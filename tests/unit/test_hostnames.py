"""Folded names: short, and nothing is lost in them, whichever way they are read."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tfdeploy.hostnames import folded, unfolded


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["chief"], "chief"),
        (["gpu1", "gpu2", "gpu3"], "gpu1, gpu2, gpu3"),
        (["gpu1", "gpu2", "gpu3", "gpu4"], "gpu[1-4]"),
        ([f"gpu{n:03}" for n in range(1, 951)], "gpu[001-950]"),
        ([f"gpu{n}" for n in range(8, 102)], "gpu[8-101]"),
        ([f"gpu{n:02}" for n in range(8, 102)], "gpu[08-101]"),
        (["gpu007", "ps0", "chief", "gpu002", "ps1", "gpu001", "gpu003"],
         "gpu[001-003,007], ps[0-1], chief"),
        (["a", "b", "c", "d"], "a, b, c, d"),
        (["gpu", "gpu0", "gpu1", "gpu2"], "gpu, gpu[0-2]"),
        ([f"rack2-gpu{n}.lab" for n in (1, 2, 3, 5)], "rack2-gpu[1-3,5].lab"),
        (["r1-g1", "r1-g2", "r2-g1", "r2-g3"], "r1-g[1-2], r2-g[1,3]"),
        ([f"10.0.0.{n}" for n in range(11, 61)], "10.0.0.[11-60]"),
        ([f"worker:{n}" for n in range(1000)], "worker:[0-999]"),
        (["g1", "g01", "g2", "g02"], "g[1,01,2,02]"),
        (["g1", "g1", "g1", "g1"], "g1"),
    ],
)  # fmt: skip
def test_names_that_differ_in_their_last_number_stand_together(names, text):
    assert folded(names) == text


NUMBERED = st.builds(
    "{}{}{}".format,
    st.sampled_from(["gpu", "gpu-0", "a1-", "1.", "ps:", ""]),
    st.one_of(st.integers(0, 12).map(str), st.integers(0, 120).map("{:02}".format)),
    st.sampled_from(["", ".lab", "-x"]),
)
NAMES = st.lists(st.one_of(NUMBERED, st.from_regex(r"[a-z0-9.-]{1,8}", fullmatch=True)))


@given(NAMES)
@example(["1", "01", "2", "3"])
@example(["9", "09", "10", "8"])
@example(["99", "099", "100", "0100"])
def test_folding_loses_nothing_and_adds_nothing(names):
    texts = folded(names).split(", ") if names else []
    assert sorted(name for text in texts for name in unfolded(text)) == sorted(set(names))


@given(NAMES, st.randoms())
def test_the_order_of_the_names_changes_no_range(names, random):
    shuffled = random.sample(names, len(names))
    assert sorted(folded(sorted(names)).split(", ")) == sorted(folded(shuffled).split(", "))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu-01", ["gpu-01"]),
        ("gpu[3]", ["gpu3"]),
        ("gpu[08-10]", ["gpu08", "gpu09", "gpu10"]),
        ("gpu[7, 1-2].lab", ["gpu7.lab", "gpu1.lab", "gpu2.lab"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
    ],
)
def test_a_text_stands_for_its_names_in_their_order(text, names):
    assert unfolded(text) == names


@pytest.mark.parametrize(
    "wrong", ["", "a-b", "1:4", "1..4", "4-1", "1-", "-4", "1,,2", "1-2-3", "1" * 5000]
)
def test_what_is_no_range_is_quoted(wrong):
    with pytest.raises(ValueError, match='expected numbers as in "gpu\\[01-16\\]"') as refused:
        unfolded(f"gpu[{wrong}]")
    assert str(refused.value).startswith("found [")


@pytest.mark.parametrize("text", ["gpu[1-10001]", "gpu[1-101][1-100]", "gpu[1-999999999]"])
def test_nobody_has_so_many(text):
    with pytest.raises(ValueError, match="names, expected 10000 at most"):
        unfolded(text)


def test_a_bracket_needs_its_end():
    with pytest.raises(ValueError, match='expected a "]" behind the "\\["'):
        unfolded("gpu[1-4")


def test_a_name_of_brackets_alone_is_refused():
    with pytest.raises(ValueError, match="expected 8 brackets at most"):
        unfolded("[1]" * 2000)
