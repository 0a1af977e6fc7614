"""Words, sizes and log lines: what comes from hosts is shown as it is, and does nothing."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tfdeploy.console import Console, duration, printable, size

# Words


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain é 漢字 😀", "plain é 漢字 😀"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("a\x00b\x7f\x9b", r"a\x00b\x7f\x9b"),
        ("a\rb\x08", r"a\rb\x08"),
        ("\u202eright to left", r"\u202eright to left"),
        ("a\nb\tc", "a\nb\tc"),
        ("caf\udce9", r"caf\udce9"),
        ("it's \\x1b", "it's \\x1b"),
    ],
)
def test_control_characters_are_made_visible(text, seen):
    assert printable(text) == seen


@given(st.text())
def test_nothing_printable_acts_on_a_terminal(text):
    assert all(char.isprintable() or char in "\n\t" for char in printable(text))


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
def test_sizes_are_told_in_the_unit_that_fits(count, text):
    assert size(count) == text


@given(st.integers(0, 10**12 - 10**8))
@example(999_999)
def test_sizes_have_three_digits_at_most(count):
    assert len(size(count).split()[0].split(".")[0]) <= 3


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.9, "59s"), (60, "1m 00s"), (185, "3m 05s"), (3600, "1h 00m"), (7800, "2h 10m"),
     (86400, "1d 0h"), (356_400, "4d 3h")],
)  # fmt: skip
def test_durations_have_two_units_at_most(seconds, text):
    assert duration(seconds) == text


# Log lines


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("step 1 loss 0.5", "step 1 loss 0.5"),
        ("[red]not red[/red] [/] [x", "[red]not red[/red] [/] [x"),
        ("\\[red] \\", "\\[red] \\"),
        ("\x1b[2Jgone", r"\x1b[2Jgone"),
        ("train.py:100: UserWarning :fire:", "train.py:100: UserWarning :fire:"),
        ("", ""),
        (" 10%\r 50%\r100%", "100%"),
        ("done\r", "done"),
        ("http://h:6006/#a  'x' 1.5", "http://h:6006/#a  'x' 1.5"),
        ("x" * 300, "x" * 300),
    ],
)
def test_a_log_line_is_printed_as_it_is(capsys, line, seen):
    Console().lines("worker:0", "gpu", [line])
    assert capsys.readouterr().out == f"worker:0@gpu | {seen}\n"


def test_each_line_stands_behind_its_task_and_host(capsys):
    Console().lines("ps:1", "h", ["a", "b"])
    assert capsys.readouterr().out == "ps:1@h | a\nps:1@h | b\n"


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30))
def test_no_log_line_breaks_the_printing(line):
    with redirect_stdout(StringIO()) as output:
        Console().lines("ps:0", "h", [line])
    assert output.getvalue() == f"ps:0@h | {printable(line)}\n"
