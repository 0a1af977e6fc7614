"""Sizes, durations and control characters, written for people."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tfdeploy.formatting.humanize import (
    escape_control,
    escape_json,
    format_duration,
    format_size,
    quote_word,
)


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("plain é 漢字 😀", "plain é 漢字 😀"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("a\x00b\x7f\x9b", r"a\x00b\x7f\x9b"),
        ("a\rb\x08", r"a\rb\x08"),
        ("\u202eright to left", r"\u202eright to left"),
        ("a\nb\tc", "a\nb\tc"),
        ("caf\udce9 \ud800", r"caf\xe9 \ud800"),
        ("it's \\x1b", "it's \\x1b"),
    ],
)
def test_control_characters_become_visible_escapes(text, escaped):
    assert escape_control(text) == escaped


@given(st.text())
def test_escaped_text_has_only_printable_characters_newlines_and_tabs(text):
    assert all(char.isprintable() or char in "\n\t" for char in escape_control(text))


@given(st.text())
def test_an_escaped_document_is_printable_and_says_the_same(text):
    escaped = escape_json(json.dumps({"reason": text}, indent=1, ensure_ascii=False))
    assert all(char.isprintable() or char == "\n" for char in escaped)
    assert json.loads(escaped) == {"reason": text}


def test_what_a_terminal_obeys_or_hides_is_escaped_in_a_document():
    assert escape_json("\x9b31m \u202e é 😀") == r"\u009b31m \u202e é 😀"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (15_234_567, "15.2 MB"),
        (2_000_000_000, "2.0 GB"),
        (7_000_000_000_000, "7.0 TB"),
    ],
)
def test_sizes_are_written_in_the_unit_that_fits(count, text):
    assert format_size(count) == text


@given(st.integers(0, 10**12 - 10**8))
@example(999_999)
def test_sizes_have_at_most_three_digits_before_the_point(count):
    assert len(format_size(count).split()[0].split(".")[0]) <= 3


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.9, "59s"), (60, "1m 00s"), (185, "3m 05s"), (3600, "1h 00m"), (7800, "2h 10m"),
     (86400, "1d 0h"), (356_400, "4d 3h")],
)  # fmt: skip
def test_durations_have_at_most_two_units(seconds, text):
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("name", "word"),
    [
        (b"plain", "plain"),
        (b"a b", "'a b'"),
        (b"new\nline\t", r"$'new\012line\011'"),
        (b"\x1b[31mred", r"$'\033[31mred'"),
        (b"bad\xff\\'", r"$'bad\377\134\047'"),
        (b"\xf0\x9f\x98\x80\n", r"$'\360\237\230\200\012'"),
        ("ö\n".encode(), r"$'\303\266\012'"),
    ],
)
def test_a_quoted_word_is_one_printable_line_with_every_byte(name, word):
    assert quote_word(os.fsdecode(name)) == word
