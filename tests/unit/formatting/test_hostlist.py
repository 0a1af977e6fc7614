"""Folded names: short, and they expand to the same names."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tfdeploy.formatting.hostlist import expand_names, fold_names


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
def test_fold_names_merges_names_that_differ_only_in_their_last_number(names, text):
    assert fold_names(names) == text


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
def test_folded_names_expand_to_the_same_names(names):
    texts = fold_names(names).split(", ") if names else []
    assert sorted(name for text in texts for name in expand_names(text)) == sorted(set(names))


@given(NAMES, st.randoms())
def test_the_order_of_the_names_does_not_change_the_patterns(names, random):
    shuffled = random.sample(names, len(names))
    assert sorted(fold_names(sorted(names)).split(", ")) == sorted(fold_names(shuffled).split(", "))


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
def test_expand_names_returns_the_names_of_a_pattern_in_its_order(text, names):
    assert expand_names(text) == names


@pytest.mark.parametrize(
    "wrong", ["", "a-b", "1:4", "1..4", "4-1", "1-", "-4", "1,,2", "1-2-3", "1" * 5000]
)
def test_expand_names_refuses_and_quotes_an_invalid_range(wrong):
    with pytest.raises(ValueError, match='expected numbers such as "gpu\\[01-16\\]"') as refused:
        expand_names(f"gpu[{wrong}]")
    assert str(refused.value).startswith("found [")


@pytest.mark.parametrize("text", ["gpu[1-10001]", "gpu[1-101][1-100]", "gpu[1-999999999]"])
def test_expand_names_refuses_more_than_10000_names(text):
    with pytest.raises(ValueError, match="names; expected at most 10000"):
        expand_names(text)


def test_expand_names_refuses_an_open_bracket():
    with pytest.raises(ValueError, match='expected a "]" after the "\\["'):
        expand_names("gpu[1-4")


def test_expand_names_refuses_more_than_8_pairs_of_brackets():
    with pytest.raises(ValueError, match="expected at most 8 pairs of brackets"):
        expand_names("[1]" * 2000)
