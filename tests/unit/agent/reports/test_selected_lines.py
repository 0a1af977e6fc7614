"""Hosts select lines by a pattern, which costs a limited time."""

from __future__ import annotations

import pytest

from tfdeploy.agent.refusal import Refusal
from tfdeploy.agent.reports import tail
from tfdeploy.agent.reports.follow import follow
from tfdeploy.agent.reports.tail import CHUNK, LINES_LOST
from tfdeploy.shared.protocol.reports import LogLines


def events(grep="", lines=None, cursors=None):
    found = follow("p", "r", ["worker:0"], True, lines, False, cursors, grep=grep)
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


@pytest.mark.parametrize("pattern", ["(a", "*", "x" * 1001, "a{99999999999}"])
def test_an_invalid_pattern_is_refused(log, pattern):
    with pytest.raises(Refusal, match="can't use the pattern"):
        events(pattern)


def test_a_pattern_costs_a_limited_time(log, monkeypatch):
    monkeypatch.setattr(tail, "PATTERN_CPU_S", 0.2)
    log.write_text("a" * 60 + "!\n")
    with pytest.raises(Refusal, match=r"takes more than 0\.2 s"):
        events("(a+)+$")
    log.write_text("a\n")
    assert lines_of("(a+)+$") == ["a"]


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
