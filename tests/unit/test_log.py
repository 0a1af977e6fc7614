"""A task's log: bounded, whole lines, nothing lost in between, and never in the task's way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfdeploy.agent import log as logs
from tfdeploy.agent.log import Log
from unit.made import eventually

PACKAGE = os.fspath(Path(__file__).parents[2])


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A log of a few kilobytes, and its old and new file."""
    monkeypatch.setattr(logs, "CHUNK", SMALL)
    return Log(os.fspath(tmp_path / "ps-0.log"), 2 * SMALL, os.fspath(tmp_path / "reserve"))


def kept(log):
    """What stands in the older and in the newer file."""
    return [Path(path).read_bytes() if os.path.exists(path) else b""
            for path in (log.path + ".1", log.path)]  # fmt: skip


def write(log, *parts):
    for part in parts:
        view = part
        while view:
            view = view[os.write(log.descriptor, view) :]
    log.settle()


def test_what_is_written_stands_in_the_file(made):
    write(made, b"one\n", b"two", b" and more\n")
    assert kept(made) == [b"", b"one\ntwo and more\n"]


def test_a_log_goes_on_where_an_earlier_one_ended(tmp_path):
    (tmp_path / "log").write_bytes(b"before\n")
    log = Log(os.fspath(tmp_path / "log"), 1 << 20, os.fspath(tmp_path / "reserve"))
    write(log, b"after\n")
    assert (tmp_path / "log").read_bytes() == b"before\nafter\n"


def test_a_log_is_its_owners_alone(made):
    assert os.stat(made.path).st_mode & 0o077 == 0


def test_when_it_last_grew_is_known(made):
    before = made.grew_at
    write(made, b"one\n")
    assert before < made.grew_at <= time.monotonic()


def test_the_last_words_are_at_hand(made, monkeypatch):
    monkeypatch.setattr(logs, "TAIL", 10)
    write(made, b"first words\n")
    write(made, b"the last")
    assert made.tail == b"s\nthe last"


def test_settling_waits_for_all_that_was_written(tmp_path):
    log = Log(os.fspath(tmp_path / "log"), 1 << 30, os.fspath(tmp_path / "reserve"))
    data = b"x" * 1023 + b"\n"
    for _ in range(20):
        os.write(log.descriptor, data * 500)
        log.settle()
        assert os.path.getsize(log.path) % (1024 * 500) == 0
    assert os.path.getsize(log.path) == 1024 * 500 * 20


# Rotation. The pump's hand is taken directly: how a pipe cuts the stream is chance.


SMALL = 1 << 12  # for CHUNK
LIMIT = 4 * SMALL
LINES = st.lists(st.integers(0, 1500), min_size=20, max_size=80)
CUTS = st.lists(st.integers(1, 700) | st.integers(1, SMALL), min_size=1, max_size=20)


def rotated(folder, pieces):
    """What the two files hold after these pieces came, one by one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs, "CHUNK", SMALL)
        log = Log(os.fspath(folder / "log"), LIMIT, os.fspath(folder / "reserve"))
        for piece in pieces:
            log._keep(piece)
    os.close(log._file)
    return kept(log)


def pieces_of(stream, cuts):
    """The stream, cut at these distances again and again."""
    place, nth = 0, 0
    while place < len(stream):
        size = cuts[nth % len(cuts)]
        yield stream[place : place + size]
        place, nth = place + size, nth + 1


@settings(max_examples=40)
@given(LINES, CUTS)
def test_files_hold_whole_lines_and_the_newest_however_the_stream_is_cut(
    tmp_path_factory, sizes, cuts
):
    stream = b"".join(b"%06d" % n + b"x" * size + b"\n" for n, size in enumerate(sizes))
    old, new = rotated(tmp_path_factory.mktemp("log"), pieces_of(stream, cuts))
    assert stream.endswith(old + new)
    assert max(len(old), len(new)) <= LIMIT // 2 + 2 * SMALL
    for begin in filter(None, (old, new)):
        assert begin[:6].isdigit()
    if old:
        assert old.endswith(b"\n")
        assert len(old) >= LIMIT // 2 - SMALL
    else:
        assert new == stream


@pytest.mark.parametrize("size", [1, 2, SMALL - 1, SMALL])
def test_a_line_that_never_ends_is_bounded_too(tmp_path, size):
    stream = b"".join(b"%09d" % n for n in range(4000))
    old, new = rotated(tmp_path, pieces_of(stream, [size]))
    assert stream.endswith(old + new)
    assert max(len(old), len(new)) <= LIMIT // 2 + 2 * SMALL
    assert len(old) >= LIMIT // 2


def test_a_line_whose_newline_comes_by_itself_stays_whole(tmp_path):
    line = b"x" * 999
    old, new = rotated(tmp_path, [line, b"\n"] * 50)
    assert set(old.splitlines()) == set(new.splitlines()) == {line}
    assert old.endswith(b"\n")


def test_a_long_stream_through_the_pipe_loses_only_what_is_oldest(made):
    lines = [b"line %07d\n" % number for number in range(20_000)]
    for start in range(0, len(lines), 37):
        os.write(made.descriptor, b"".join(lines[start : start + 37]))
    made.settle()
    old, new = kept(made)
    assert b"".join(lines).endswith(old + new)
    assert len(old) >= SMALL // 2
    assert max(len(old), len(new)) <= 3 * SMALL


def test_where_no_new_file_can_be_made_the_old_one_goes_on(made):
    blocked = Path(made.path + ".new")
    blocked.mkdir()
    write(made, *[b"x" * 99 + b"\n"] * 200)
    assert kept(made) == [b"", (b"x" * 99 + b"\n") * 200]
    blocked.rmdir()
    write(made, b"y\n", b"z\n")
    old, new = kept(made)
    assert old + new == (b"x" * 99 + b"\n") * 200 + b"y\nz\n"
    assert len(new) < 100


# No room


FILL = """
import os, resource, sys, time
sys.path.insert(0, sys.argv[1])
from tfdeploy.agent.log import Log
"""


@contextmanager
def small_disk(folder, kilobytes):
    """A disk of so many kB in memory, or None where we may not mount one."""
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", folder],
        capture_output=True,
    )
    try:
        yield folder if done.returncode == 0 else None
    finally:
        if done.returncode == 0:
            subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_costs_lines_and_the_last_words_still_stand(tmp_path):
    with small_disk(tmp_path / "disk", 1024) as disk:
        if disk is None:
            pytest.skip("only root may mount a small disk here")
        log = Log(os.fspath(disk / "log"), 1 << 30, os.fspath(disk / "reserve"))
        (disk / "checkpoint").write_bytes(b"x" * 700_000)
        for number in range(400):
            write(log, b"%03d" % number + b"x" * 996 + b"\n")
            if not (disk / "reserve").exists():
                break
        last = b"ResourceExhaustedError: No space left on device\n"
        write(log, last)
        assert (disk / "log").read_bytes().endswith(last)
        write(log, *[b"y" * 999 + b"\n"] * 400)
        assert log.tail.endswith(b"y\n")
        written = 1000 * (number + 1) + len(last) + 400_000
        lost = written - (disk / "log").stat().st_size
        assert lost > 0
        (disk / "checkpoint").unlink()
        write(log, b"room again\n")
        end = (disk / "log").read_bytes()[-200:]
        assert end.endswith(b"\n[%d bytes of log lost: no space]\nroom again\n" % lost)


def test_a_file_that_may_not_grow_blocks_nobody(tmp_path):
    """The same without a disk of our own: the system refuses each byte beyond a limit."""
    code = FILL + (
        "log = Log(sys.argv[2], 1 << 30, sys.argv[2] + '.reserve')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))\n"
        "for _ in range(50):\n"
        "    os.write(log.descriptor, b'x' * 100_000)\n"
        "log.settle()\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)\n"
        "os.write(log.descriptor, b'room again\\n')\n"
        "log.settle()\n"
    )
    path = tmp_path / "log"
    subprocess.run([sys.executable, "-c", code, PACKAGE, os.fspath(path)], check=True, timeout=30)
    text = path.read_bytes()
    assert text[:100_000] == b"x" * 100_000
    assert text[100_000:] == b"\n[4900000 bytes of log lost: no space]\nroom again\n"


def test_the_reserve_goes_with_the_log(made, tmp_path):
    assert (tmp_path / "reserve").stat().st_size == len(logs.RESERVE)
    made.close()
    assert not (tmp_path / "reserve").exists()


def test_a_reserve_that_can_not_be_set_aside_is_done_without(tmp_path):
    log = Log(os.fspath(tmp_path / "log"), 1 << 20, os.fspath(tmp_path / "no" / "reserve"))
    write(log, b"one\n")
    log.close()
    assert (tmp_path / "log").read_bytes() == b"one\n"


def test_a_writer_that_outlives_many_pipes_of_text_never_waits_for_a_reader(made):
    """Nobody has to read: the pump does, in a thread of its own."""
    noisy = "import sys\nfor n in range(30_000): print('line', n)"
    done = subprocess.Popen([sys.executable, "-c", noisy], stdout=made.descriptor)
    assert done.wait(30.0) == 0
    assert eventually(lambda: kept(made)[1].endswith(b"line 29999\n"))
