"""Bytes on their way: figures that people can read, and that never go back."""

from __future__ import annotations

import re
import threading
from contextlib import ExitStack
from io import StringIO

import pytest
from rich.console import Console
from support.builders import eventually

from tfdeploy.hosts.byte_progress import SHOWN, WINDOW_S, Transfer, Transfers
from tfdeploy.output import progress

MB = 10**6


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def moved(transfer, clock, megabytes, seconds=1.0):
    """So many more in so many seconds."""
    clock.now += seconds
    transfer("file", transfer.there + megabytes * MB)


def test_a_transfer_shows_bytes_rate_and_time_left(clock):
    transfer = Transfer(1000 * MB, clock=clock)
    for _ in range(4):
        moved(transfer, clock, 5)
    assert transfer.figures == "20.0 MB of 1.0 GB, 5.0 MB/s, 3m 16s left"


def test_without_a_total_a_transfer_shows_bytes_and_rate(clock):
    transfer = Transfer(clock=clock)
    moved(transfer, clock, 5)
    assert transfer.figures == "5.0 MB, 5.0 MB/s"


def test_more_than_a_day_left_is_shown_only_after_one_percent(clock):
    transfer = Transfer(1000 * MB, clock=clock)
    transfer("file", 0)
    clock.now += 1
    transfer("file", 1000)
    assert transfer.figures == "1.0 kB of 1.0 GB, 1.0 kB/s"


def test_a_finished_transfer_shows_no_rate(clock):
    transfer = Transfer(10 * MB, clock=clock)
    moved(transfer, clock, 10)
    assert transfer.figures == "10.0 MB of 10.0 MB"


def test_the_rate_is_that_of_the_last_seconds(clock):
    transfer = Transfer(1000 * MB, clock=clock)
    moved(transfer, clock, 100)
    for _ in range(int(WINDOW_S) + 1):
        moved(transfer, clock, 1)
    assert transfer.rate == pytest.approx(MB)


def test_a_transfer_that_hangs_shows_no_time_left(clock):
    transfer = Transfer(10 * MB, clock=clock)
    moved(transfer, clock, 5)
    clock.now += 2 * WINDOW_S
    assert transfer.figures == "5.0 MB of 10.0 MB, 0 B/s"


def test_bytes_that_were_there_before_do_not_count_for_the_rate(clock):
    transfer = Transfer(100 * MB, clock=clock)
    transfer.skip(90 * MB)
    moved(transfer, clock, 1)
    assert transfer.figures == "91.0 MB of 100.0 MB, 1.0 MB/s, 9s left"


def test_progress_never_decreases_or_exceeds_the_total(clock):
    transfer = Transfer(10 * MB, clock=clock)
    for there in (5, 3, 20):
        transfer("file", there * MB)
    assert transfer.there == 10 * MB


def test_a_transfer_has_a_line_until_it_ends():
    transfers, file = Transfers(), "model.ckpt-7.data-00000-of-00001"
    with transfers.begin("gpu-01", note="reading its checkpoints"):
        assert transfers.lines() == ["gpu-01: reading its checkpoints"]
        assert transfers.lines(notes=False) == []
    with transfers.begin("gpu-01", 10 * MB) as transfer:
        assert transfers.lines() == []
        transfer(file, 5 * MB)
        [line] = transfers.lines(notes=False)
        assert re.fullmatch(rf"gpu-01: 5\.0 MB of 10\.0 MB, .*/s, \d+s left, {file}", line)
    assert transfers.lines() == []


def test_of_many_transfers_the_largest_have_a_line():
    transfers = Transfers()
    with ExitStack() as ending:
        for n in range(20):
            ending.enter_context(transfers.begin(f"gpu-{n}", n * MB))("file", 1)
        lines = transfers.lines()
    assert [line[:6] for line in lines[:SHOWN]] == ["gpu-19", "gpu-18", "gpu-17", "gpu-16"]
    assert lines[SHOWN:] == ["and 16 more transfers"]


# Shown


def test_on_a_terminal_transfers_are_shown_in_place_and_removed():
    console = Console(file=StringIO(), force_terminal=True, width=60)
    transfers = Transfers()
    with (
        progress.in_place(console, transfers),
        transfers.begin("gpu-01", 10 * MB) as transfer,
    ):
        assert eventually(lambda: "querying the hosts" in console.file.getvalue())
        transfer("\x1b]0;evil\x07" + "x" * 99, 5 * MB)
        assert eventually(lambda: "gpu-01: 5.0 MB of 10.0 MB, " in console.file.getvalue())
    text = console.file.getvalue()
    assert "\x1b]" not in text
    assert "\x1b[2K" in text[-30:]


def test_without_a_terminal_transfers_are_lines_every_few_seconds():
    transfers, lines, printed = Transfers(), [], threading.Event()

    def print_line(line):
        lines.append(line)
        printed.set()

    with (
        progress.in_lines(print_line, transfers, every_s=0.01),
        transfers.begin("gpu-01", 10 * MB, "reads"),
    ):
        assert printed.wait(60)
    assert lines == ["gpu-01: reads"]  # once, however long it takes


def test_a_transfer_that_takes_no_time_has_no_line():
    lines, transfers = [], Transfers()
    with (
        progress.in_lines(lines.append, transfers, every_s=3600.0),
        transfers.begin("gpu-01", MB) as transfer,
    ):
        transfer("file", MB)
    assert lines == []
