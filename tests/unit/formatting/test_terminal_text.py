"""The final text of a line in a terminal: the last state of a progress bar."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.formatting import terminal_text

GREEN, BOLD = "\x1b[32m", "\x1b[1m"
OFF = "\x1b[0m"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("step 1", "step 1"),
        (" spaces  ", " spaces  "),
        ("done\r", "done"),
        (" 10%\r 50%\r100%", "100%"),
        ("12345\rab", "ab345"),
        ("12345\rab   ", "ab"),
        ("12345\rab\x1b[K", "ab"),
        ("12345\x1b[2K\rab", "ab"),
        ("abc\b\bX", "aXc"),
        ("\b\b\ba", "a"),
        ("\x1b[A\x1b[3;4Hup\x1b[?25l", "up"),
        ("\x1b(B\x1b[mtput", "tput"),
        ("cut\x1b[3", "cut"),
        ("\x07\x00\x1b]0;t\x07", "\x07\x00\x1b]0;t\x07"),
    ],
)
def test_plain_text_is_what_a_terminal_finally_shows(line, text):
    assert terminal_text.plain_text(line) == text


def keras(steps):
    """Return what keras.utils.Progbar writes in one epoch when its output is not a terminal."""
    line, before = "", 0
    for step in range(1, steps + 1):
        end = "0s" if step == steps else "12s"
        shown = f"{step}/{steps} {'━' * 20} {end} 3ms/step - loss: {1 / step:.4f}"
        bar = f"{BOLD}{step}/{steps}{OFF} {GREEN}{'━' * 10}{OFF}\x1b[37m{'━' * 10}{OFF}"
        rest = f" {BOLD}{end}{OFF} 3ms/step - loss: {1 / step:.4f}"
        line += "\b" * before + "\r" + bar + rest + " " * (before - len(shown))
        before = len(shown)
    return line


def test_plain_text_of_a_keras_progress_bar_is_its_last_state():
    assert terminal_text.plain_text(keras(20)) == f"20/20 {'━' * 20} 0s 3ms/step - loss: 0.0500"


def test_a_style_applies_until_it_is_reset():
    assert terminal_text.styled_spans(f"a{BOLD}b{GREEN}c{OFF}d") == [
        ("a", ""), ("b", "1"), ("c", "1;32"), ("d", ""),
    ]  # fmt: skip


def test_overwritten_characters_get_the_style_of_the_new_ones():
    assert terminal_text.styled_spans(f"{GREEN}123{OFF}\rab") == [("ab", ""), ("3", "32")]


@given(st.text(st.sampled_from("ab \r\b\x1b[]0;13mKJ\x07("), max_size=60))
def test_plain_text_has_no_characters_that_move_the_cursor_back(line):
    assert not any(char in terminal_text.plain_text(line) for char in "\r\b")


@given(st.text(st.characters(exclude_characters="\r\b\x1b")))
def test_a_line_without_control_characters_stays_as_it_is(line):
    assert terminal_text.styled_spans(line) == [(line, "")]


def test_many_styles_and_updates_are_processed_quickly():
    line = "".join(f"\x1b[{n % 90}m{n}\r" for n in range(50_000))
    assert terminal_text.plain_text(line) == "49999"
