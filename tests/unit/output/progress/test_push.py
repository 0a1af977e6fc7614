"""The progress of a push is readable for three hosts, and for a thousand."""

from __future__ import annotations

import re
import threading
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from support.builders import eventually

from tfdeploy.errors import TransferFailed, Unreachable
from tfdeploy.output.progress import push, push_drawing
from tfdeploy.output.progress.push import PushProgress
from tfdeploy.output.progress.push_drawing import MAX_BARS

MANY = [f"gpu{n:03}" for n in range(1, 1001)]
MB = 10**6


def needs(hosts, **sizes):
    return {host: sizes or {"r": MB} for host in hosts}


def make_progress(hosts=MANY, done=0, unreachable=0, failed=0):
    """Return the progress with this many hosts in each state, in the order of the arguments."""
    progress = PushProgress(needs(hosts))
    for host in hosts[:done]:
        progress(host, "r", MB)
    for host in hosts[done : done + unreachable]:
        progress.fail(Unreachable(host, "gone"))
    for host in hosts[done + unreachable : done + unreachable + failed]:
        progress.fail(TransferFailed(host, "no room"))
    return progress


# The numbers


@pytest.mark.parametrize(
    ("states", "line"),
    [
        ({}, "1000 to go"),
        ({"done": 950, "unreachable": 13}, "gpu[001-950] done · 37 to go · 13 unreachable"),
        ({"done": 990, "unreachable": 7, "failed": 3},
         "gpu[001-990] done · 7 unreachable · 3 failed"),
        ({"done": 1000}, "gpu[001-1000] done"),
    ],
)  # fmt: skip
def test_one_line_shows_the_state_of_all_hosts(states, line):
    assert make_progress(**states).line == line


def test_hosts_that_are_too_many_to_name_are_counted():
    progress = make_progress()
    for host in MANY[::2]:
        progress(host, "r", MB)
    assert progress.line == "500 done · 500 to go"


def test_a_host_is_done_when_it_has_all_its_releases():
    progress = PushProgress(needs(["a", "b"], source=1, data=MB))
    for release in ("source", "data"):
        progress("a", release, MB)
    progress("b", "source", 1)
    assert progress.line == "a done · 1 to go"


def test_bytes_and_rate_are_the_sum_of_all_hosts():
    progress = PushProgress(needs(["a", "b"], source=MB, data=9 * MB))
    for host in ("a", "b"):
        progress(host, "source", 0)
        progress(host, "source", MB)
    figures = r"2 to go · 2\.0 MB of 20\.0 MB, [\d.]+ [kM]?B/s, \d+s left"
    assert re.fullmatch(figures, progress.line)


def test_bytes_that_a_host_had_before_count_but_have_no_rate():
    progress = PushProgress(needs(["a"], source=MB, data=9 * MB))
    progress("a", "data", 9 * MB)
    assert (progress.hosts["a"].there, progress.hosts["a"].figures) == (9 * MB, "")


@given(st.lists(st.tuples(st.sampled_from(["source", "data"]), st.integers(0, 2 * MB))))
def test_a_bar_never_goes_back_or_beyond_its_end(reports):
    progress, before = PushProgress(needs(["a"], source=MB // 2, data=MB)), 0
    for release, arrived in reports:
        progress("a", release, arrived)
        assert before <= progress.hosts["a"].there <= MB * 3 // 2
        before = progress.hosts["a"].there


# The display


@pytest.fixture
def terminal():
    return Console(file=StringIO(), force_terminal=True, width=80, soft_wrap=True)


def drawn_lines(console):
    """Return every line that was on the terminal at any time."""
    return re.split(r"[\r\n]+", re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", console.file.getvalue()))


def test_on_a_terminal_few_hosts_have_a_bar_each(terminal):
    with push_drawing.show(terminal, needs(MANY[:MAX_BARS])) as progress:
        progress(MANY[0], "r", MB)
        progress.fail(Unreachable(MANY[1], "gone"))
        assert eventually(lambda: any("100%" in line for line in drawn_lines(terminal)))
        assert eventually(lambda: any("unreachable" in line for line in drawn_lines(terminal)))
    lines = drawn_lines(terminal)
    assert all(any(host in line for line in lines) for host in MANY[:MAX_BARS])
    assert all(len(line) <= 80 for line in lines)


def test_a_bar_shows_bytes_rate_and_time_left(terminal):
    with push_drawing.show(terminal, needs(["gpu-01"], source=MB, data=999 * MB)) as progress:
        progress("gpu-01", "source", 0)
        progress("gpu-01", "source", MB)
        progress("gpu-01", "data", 0)
        progress("gpu-01", "data", 449 * MB)
        expected = re.compile(r"gpu-01 ━.* 45% 450\.0 MB of 1\.0 GB, [\d.]+ [MG]B/s, \d+s left *")
        assert eventually(lambda: any(expected.fullmatch(line) for line in drawn_lines(terminal)))


def test_on_a_terminal_many_hosts_share_one_line(terminal):
    with push_drawing.show(terminal, needs(MANY)) as progress:
        for host in MANY[:950]:
            progress(host, "r", MB)
        line = "gpu[001-950] done · 50 to go"
        assert eventually(lambda: line in drawn_lines(terminal))
    assert all(len(line) <= 80 for line in drawn_lines(terminal))


@pytest.fixture
def quiet_lines(monkeypatch):
    """No line is due before a test says so."""
    monkeypatch.setattr(push, "LINE_S", 3600.0)
    monkeypatch.setattr(push, "QUIET_S", 3600.0)


def test_without_a_terminal_a_short_push_prints_nothing(quiet_lines):
    lines = []
    with push.progress_in_lines(lines.append, needs(MANY[:MAX_BARS])) as progress:
        progress(MANY[0], "r", MB)
    assert lines == []


@pytest.mark.parametrize("hosts", [MANY, MANY[:MAX_BARS]], ids=len)
def test_without_a_terminal_a_line_is_printed_now_and_then(quiet_lines, monkeypatch, hosts):
    """Many threads may report at the same time."""
    lines = []
    with push.progress_in_lines(lines.append, needs(hosts)) as progress:
        for host in hosts[:5]:
            progress(host, "r", MB)
        assert lines == []
        monkeypatch.setattr(push, "LINE_S", 0.0)
        threads = [threading.Thread(target=progress, args=(host, "r", MB)) for host in hosts[5:11]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert f"gpu[001-011] done · {len(hosts) - 11} to go" in lines


def test_without_a_terminal_a_line_is_printed_when_nothing_changes_any_more(monkeypatch):
    monkeypatch.setattr(push, "LINE_S", 3600.0)
    monkeypatch.setattr(push, "QUIET_S", 0.02)
    lines = []
    with push.progress_in_lines(lines.append, needs(MANY[:3])) as progress:
        progress(MANY[0], "r", MB)
        assert eventually(lambda: lines)
    assert lines == ["gpu001 done · 2 to go"]
