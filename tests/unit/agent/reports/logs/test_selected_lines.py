"""Hosts select lines by a pattern and by their time; a pattern costs a limited time."""

from __future__ import annotations

import os
import time

import pytest

from tfdeploy.agent.refusal import Refusal
from tfdeploy.agent.reports.follow import follow
from tfdeploy.agent.reports.logs import selected_lines
from tfdeploy.agent.reports.logs.log_times import LogTimes
from tfdeploy.agent.reports.logs.tail import CHUNK, LINES_LOST
from tfdeploy.shared.protocol.reports import LogLines


def events(grep="", lines=None, since_s=None, since_at=None, cursors=None):
    more = {"grep": grep, "since_s": since_s, "since_at": since_at}
    found = follow("p", "r", ["worker:0"], True, lines, False, cursors, **more)
    return [event for event in found if isinstance(event, LogLines)]


def lines_of(*args, **more):
    return [line for event in events(*args, **more) for line in event.lines]


def test_only_lines_that_match_are_reported(log):
    log.write_text("step 1\nError: x\nstep 2\nnan\n")
    assert lines_of("Error|nan$") == ["Error: x", "nan"]
    assert lines_of() == ["step 1", "Error: x", "step 2", "nan"]


def test_a_pattern_does_not_see_colours(log):
    log.write_text("\x1b[31mloss\x1b[0m: \x1b[1mnan\x1b[0m\n")
    assert len(lines_of("^loss: nan$")) == 1


def test_that_lines_were_lost_is_always_reported(log):
    log.write_text("a\n")
    assert lines_of("nothing", cursors={"worker:0": "1:1:00000000"}) == [LINES_LOST]


def test_the_last_matching_lines_are_searched_in_the_whole_log(log):
    log.write_text("match 1\nmatch 2\n" + "x\n" * CHUNK)
    assert lines_of("match", lines=1) == ["match 2"]
    assert lines_of("match", lines=9) == ["match 1", "match 2"]
    assert lines_of("match", lines=0) == []


def test_a_cursor_continues_behind_lines_that_do_not_match(log):
    log.write_text("match 1\n" + "x\n" * CHUNK)
    cursor = events("match")[-1].cursor
    with log.open("a") as file:
        file.write("match 2\n")
    assert lines_of("match", lines=5, cursors={"worker:0": cursor}) == ["match 2"]


def write_at(log, times, text, at):
    with log.open("a") as file:
        times.add(os.stat(log).st_ino, os.stat(log).st_size, at)
        file.write(text)
    os.utime(log, (at, at))


def test_lines_since_a_moment_are_reported(log):
    log.touch()
    times, now = LogTimes(os.fspath(log)), time.time()
    write_at(log, times, "an hour ago\n", now - 3600)
    write_at(log, times, "ten minutes ago\nand", now - 600)
    write_at(log, times, " one minute\n", now - 60)
    assert lines_of(since_s=5000.0)[0] == "an hour ago"
    assert lines_of(since_s=900.0) == ["ten minutes ago", "and one minute"]
    assert lines_of(since_s=100.0) == ["and one minute"]  # a line is never cut
    assert lines_of(since_at=now - 100.0) == ["and one minute"]
    assert lines_of(since_s=10.0) == []
    assert lines_of("minute", lines=1, since_s=900.0) == ["and one minute"]


def test_without_an_index_all_lines_may_be_new(log):
    log.write_text("a\nb\n")
    assert lines_of(since_s=60.0) == ["a", "b"]
    old = time.time() - 600
    os.utime(log, (old, old))
    assert lines_of(since_s=60.0) == []


@pytest.mark.parametrize("pattern", ["(a", "*", "x" * 1001, "a{99999999999}"])
def test_an_invalid_pattern_is_refused(log, pattern):
    with pytest.raises(Refusal, match="can't use the pattern"):
        events(pattern)


def test_a_pattern_costs_a_limited_time(log, monkeypatch):
    monkeypatch.setattr(selected_lines, "PATTERN_CPU_S", 0.2)
    log.write_text("a" * 60 + "!\n")
    with pytest.raises(Refusal, match=r"takes more than 0\.2 s"):
        events("(a+)+$")
    log.write_text("a\n")
    assert lines_of("(a+)+$") == ["a"]


def test_since_means_the_moment_of_the_first_request(log):
    log.write_text("old\n")
    old = time.time() - 600
    os.utime(log, (old, old))
    [begin] = events(since_s=10.0)
    assert begin.lines == []
    with log.open("a") as file:
        file.write("while the connection was lost\n")
    os.utime(log, (old + 300, old + 300))
    cursors = {"worker:0": begin.cursor}
    assert lines_of(since_s=10.0, cursors=cursors) == ["while the connection was lost"]


def test_a_log_that_did_not_exist_at_the_first_request_continues_at_its_start(log):
    [begin] = events(since_s=10.0)
    log.write_text("first\n")
    os.utime(log, (1.0, 1.0))
    assert lines_of(since_s=10.0, cursors={"worker:0": begin.cursor}) == ["first"]


def test_the_last_lines_come_in_parts_and_each_can_be_continued(log):
    written = [f"line {number:06} " + "x" * 100 for number in range(3 * CHUNK // 100)]
    log.write_text("".join(f"{line}\n" for line in written))
    found = events("line", lines=len(written) - 9)
    assert max(sum(map(len, event.lines)) for event in found) <= 2 * CHUNK
    assert [line for event in found for line in event.lines] == written[9:]
    count = 0
    for event in found:
        count += len(event.lines)
        cursors = {"worker:0": event.cursor}
        assert lines_of("line", lines=1, cursors=cursors) == written[9 + count :]
