"""Log lines are printed as a terminal shows them: colours are kept, nothing else acts on it."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.formatting.humanize import escape_control
from tfdeploy.output.console import Console
from tfdeploy.output.log_lines import print_log_lines


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("step 1 loss 0.5", "step 1 loss 0.5"),
        ("[red]not red[/red] [/] [x", "[red]not red[/red] [/] [x"),
        ("\\[red] \\", "\\[red] \\"),
        ("\x1b[2Jgone", "gone"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x1b", ""),
        ("a\x00b\x9b1m", r"a\x00b\x9b1m"),
        ("train.py:100: UserWarning :fire:", "train.py:100: UserWarning :fire:"),
        ("", ""),
        (" 10%\r 50%\r100%", "100%"),
        ("done\r", "done"),
        ("one\nps:0@host | two", r"one\nps:0@host | two"),
        ("http://h:6006/#a  'x' 1.5", "http://h:6006/#a  'x' 1.5"),
        ("x" * 300, "x" * 300),
    ],
)
def test_a_log_line_is_printed_as_a_terminal_shows_it(capsys, line, text):
    print_log_lines(Console(), "worker:0", "gpu", [line])
    assert capsys.readouterr().out == f"worker:0@gpu | {text}\n"


def test_each_line_follows_its_task_and_host(capsys):
    print_log_lines(Console(), "ps:1", "h", ["a", "b"])
    assert capsys.readouterr().out == "ps:1@h | a\nps:1@h | b\n"


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30))
def test_any_printable_line_is_printed(line):
    with redirect_stdout(StringIO()) as printed:
        print_log_lines(Console(), "ps:0", "h", [line])
    assert printed.getvalue() == f"ps:0@h | {escape_control(line)}\n"


COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def print_on_terminal(line, monkeypatch, capsys):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_log_lines(Console(), "ps:0", "h", [line])
    return capsys.readouterr().out.partition(" | ")[2]


def test_on_a_terminal_a_scripts_colours_are_kept(monkeypatch, capsys):
    out = print_on_terminal("\x1b[1m3/9\x1b[0m [b] \x1b[32m━━\x1b[0m", monkeypatch, capsys)
    assert "\x1b[1m3/9\x1b[0m" in out
    assert "\x1b[32m━━\x1b[0m" in out
    assert COLOURS.sub("", out) == "3/9 [b] ━━\n"


def test_on_a_terminal_repeated_noise_is_one_dim_line_with_its_count(monkeypatch, capsys):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    noise = "W0000 x.cc:1] Ignoring error status when releasing multi-device function handle"
    console = Console()
    for step in range(3):
        print_log_lines(console, "ps:0", "h", [noise, f"step {step}"])
    console.print_text("the end")
    *lines, count, end = COLOURS.sub("", capsys.readouterr().out).splitlines()
    assert lines == [f"ps:0@h | {text}" for text in (noise, "step 0", "step 1", "step 2")]
    assert count == f"ps:0@h | {noise[14:-7]} … (2 more lines like this)"
    assert end == "the end"


def test_without_a_terminal_every_line_of_noise_is_printed(capsys):
    noise = "Ignoring error status when releasing multi-device function"
    print_log_lines(Console(), "ps:0", "h", [noise, noise])
    assert capsys.readouterr().out.count(noise) == 2


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("\x1b[31mred\x1b[2J\x1b[9999Hgone", "redgone"),
        ("\x1b[31mred\x1b]0;title\x07", r"red\x1b]0;title\x07"),
        ("\x1b[31mred\x1b]8;;http://evil\x1b\\", "red\\x1b]8;;http://evil\\x1b\\"),
        ("\x1b[31mred\x9b2J\x07\u202e", r"red\x9b2J\x07\u202e"),
        ("\x1b[" + "9" * 5000 + "mplain", "plain"),
    ],
)
def test_no_escape_sequence_but_colours_reaches_the_terminal(monkeypatch, capsys, line, text):
    assert COLOURS.sub("", print_on_terminal(line, monkeypatch, capsys)) == text + "\n"


def test_an_open_colour_is_reset_at_the_end_of_its_line(monkeypatch, capsys):
    assert print_on_terminal("\x1b[31mred", monkeypatch, capsys).endswith("\x1b[31mred\x1b[0m\n")


# What a terminal shows beside the line

NOISE = "2026-11-23 02:53:16.1: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on"
OOM = "ResourceExhaustedError: OOM when allocating tensor with shape[64]"


def test_noise_is_dimmed_on_a_terminal_and_nowhere_removed(monkeypatch, capsys):
    assert f"\x1b[2m{NOISE}\x1b[0m" in print_on_terminal(NOISE, monkeypatch, capsys)
    monkeypatch.undo()
    print_log_lines(Console(), "ps:0", "h", [NOISE])
    assert capsys.readouterr().out == f"ps:0@h | {NOISE}\n"


def test_a_terminal_explains_a_known_message_once_for_each_task(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    console = Console()
    for task in ("worker:0", "worker:1"):
        print_log_lines(console, task, "h", [OOM, OOM])
    out = COLOURS.sub("", capsys.readouterr().out)
    assert out.count(OOM) == 4
    assert out.count("↳ the GPU's memory is full") == 2
