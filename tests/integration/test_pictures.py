"""The terminal that records commands for the pictures of the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture
def pictures(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    from make_pictures import svg, terminal

    return svg, terminal


def texts(screen):
    return ["".join(span.text for span in line).rstrip() for line in screen if line]


def test_a_command_is_recorded_as_a_terminal_shows_it(pictures, tmp_path):
    _, terminal = pictures
    recorded = terminal.Terminal(40, 5, tmp_path)
    recorded.type("x")
    code = recorded.run(
        ["bash", "-c", "tput cols; printf '\\e[1;31mred\\e[0m one\\rtwo\\n'; exit 3"]
    )
    assert code == 3
    assert texts(recorded.screen) == ["$ x", "40", "two one"]
    assert [(s.text, s.front, s.is_bold) for s in recorded.screen[0][:1]] == [("$", "green", True)]
    assert [frame.at for frame in recorded.frames] == sorted(f.at for f in recorded.frames)


def test_a_key_is_pressed_when_the_screen_is_as_expected(pictures, tmp_path):
    _, terminal = pictures
    recorded = terminal.Terminal(40, 5, tmp_path)
    words = ["bash", "-c", "echo ready; read -rsn1 key; echo got $key"]
    assert recorded.run(words, lambda text: "ready" in text, b"q") == 0
    assert texts(recorded.screen) == ["ready", "got q"]


def test_waits_are_shortened_and_moments_left_out(pictures):
    svg, terminal = pictures
    screens = [((terminal.Span(text, "default", "default", False),),) for text in "abcd"]
    times = (0.0, 1.0, 1.01, 60.0, 60.5)
    shown = (screens[0], screens[1], screens[2], screens[2], screens[3])
    frames = [terminal.Frame(at, screen) for at, screen in zip(times, shown, strict=True)]
    assert [(screen, round(seconds, 2)) for screen, seconds in svg.shorten(frames)] == [
        (screens[0], 1.0), (screens[2], svg.LONGEST_S), (screens[3], svg.LAST_S)
    ]  # fmt: skip


def test_a_recording_becomes_an_animation_and_one_screen_a_picture(pictures, tmp_path):
    svg, terminal = pictures
    recorded = terminal.Terminal(20, 4, tmp_path)
    recorded.type("ls <&>")
    moving = svg.draw(recorded.frames, "a & b", "what it shows", 20)
    root = ElementTree.fromstring(moving)
    groups = [each for each in root if each.get("class", "").startswith("f")]
    assert [each.get("class") for each in groups[-2:]] == ["f", "f z"]
    assert len(groups) == len(re.findall("@keyframes", moving)) > 3
    still = svg.draw(recorded.frames[-1:], "a & b", "what it shows", 20)
    assert "@keyframes" not in still
    assert "what it shows" in still and "a &amp; b" in still
    assert ElementTree.fromstring(still).get("role") == "img"
