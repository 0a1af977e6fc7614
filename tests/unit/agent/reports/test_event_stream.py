"""What event files gain is sent once, in whole records, and from 0 on if a file is replaced."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import zlib

import pytest
from support.builders import make_launch
from support.events import NAME, record, scalar, version

from tfdeploy.agent import paths
from tfdeploy.agent.machine import lock
from tfdeploy.agent.reports import event_stream
from tfdeploy.agent.reports.event_stream import follow_events
from tfdeploy.shared import event_records, records
from tfdeploy.shared.protocol.events import FollowEvents
from tfdeploy.shared.protocol.record import to_json
from tfdeploy.shared.records import TaskState

TASK = "worker:0"


@pytest.fixture
def small_blocks(monkeypatch):
    """Read and send 4 KiB at a time instead of 1 MiB, whose checksums take long in Python."""
    monkeypatch.setattr(event_records, "BLOCK", 1 << 12)
    monkeypatch.setattr(event_stream, "BATCH_BYTES", 1 << 12)


@pytest.fixture
def work(root):
    """The work directory of worker:0, which has succeeded."""
    directory = paths.task("p", "r", TASK)
    os.makedirs(paths.work(directory))
    records.write(paths.launch(directory), records.to_json(make_launch()))
    set_state("SUCCEEDED")
    return root / "p" / "runs" / "r" / "worker-0" / "work"


def set_state(state):
    directory = paths.task("p", "r", TASK)
    records.write(paths.state(directory), records.to_json(TaskState(state, 0.0, pid=7)))


def write(file, *parts):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"".join(parts))
    return file


class Copies:
    """What a controller has after it has followed."""

    def __init__(self):
        self.files = {}
        self.begins = []
        self.unreadable = []

    def take(self, batch):
        for piece in batch.pieces:
            data = zlib.decompress(base64.b64decode(piece.data))
            self.files[piece.path] = self.files.get(piece.path, b"")[: piece.begin] + data
            self.begins.append((piece.path, piece.begin))
        self.unreadable += [(found.path, found.begin, found.error) for found in batch.unreadable]
        return batch.complete

    def present(self):
        return [
            (TASK, path, len(data), hashlib.sha256(data).hexdigest())
            for path, data in self.files.items()
        ]

    def follow(self):
        for batch in follow_events("p", "r", [TASK], self.present()):
            self.take(batch)
        return self


@pytest.fixture
def looks(work, monkeypatch):
    """Return a function that follows a task that runs: before each look it calls the next of its
    arguments."""

    def follow(copies, *changes):
        remaining = list(changes)

        def interrupts(pause_s):
            if not remaining:
                return True
            remaining.pop(0)()
            return False

        monkeypatch.setattr(event_stream, "caller_interrupts", interrupts)
        descriptor = lock.acquire(paths.task("p", "r", TASK))
        set_state("RUNNING")
        try:
            return copies.follow()
        finally:
            os.close(descriptor)

    return follow


def test_files_are_named_as_below_the_checkpoint_directory_or_the_work_directory(work):
    write(work / "checkpoints" / NAME, version())
    write(work / "checkpoints" / "eval" / NAME, version())
    write(work / "logs" / "train" / NAME, version())
    write(work / NAME, version())  # the same path as the first
    copies = Copies().follow()
    assert sorted(copies.files) == sorted(
        [NAME, f"eval/{NAME}", f"logs/train/{NAME}", f"work/{NAME}"]
    )


def test_only_what_was_appended_is_sent_and_never_a_part_of_a_record(work, looks):
    file, step = write(work / "logs" / NAME, version(), scalar(1, 0.5)[:20]), scalar(1, 0.5)
    path = f"logs/{NAME}"
    copies = looks(
        Copies(),
        lambda: write(file, version(), step[:-1]),
        lambda: write(file, version(), step),
        lambda: write(file, version(), step, step, step[:5]),
    )
    assert copies.files == {path: version() + step * 2}
    assert copies.begins == [(path, at) for at in (0, len(version()), len(version() + step))]


def test_a_controller_that_comes_back_gets_only_what_it_lacks(work):
    copies = Copies()
    write(work / NAME, version())
    copies.follow()
    write(work / NAME, version(), scalar(1, 0.5))
    copies.follow().follow()
    assert copies.begins == [(NAME, 0), (NAME, len(version()))]


def test_a_copy_that_the_file_does_not_start_with_is_replaced(work):
    copies = Copies()
    copies.files = {NAME: version(9.0)}
    write(work / NAME, version(), scalar(1, 0.5))
    assert copies.follow().files == {NAME: version() + scalar(1, 0.5)}


@pytest.mark.parametrize(
    "content", [[version(7.0)], [version(7.0), scalar(1, 3.0), record(b"x" * 100)]]
)
def test_a_file_that_shrinks_or_is_rewritten_is_sent_again(work, looks, content):
    file = write(work / NAME, version(), scalar(1, 0.5), scalar(2, 0.5))
    assert looks(Copies(), lambda: write(file, *content)).files == {NAME: b"".join(content)}


def test_a_file_that_is_replaced_is_sent_again(work, looks):
    file = write(work / NAME, version(), scalar(1, 0.5))

    def replace():
        write(work / "new", version(7.0), scalar(1, 0.25), scalar(2, 0.25)).replace(file)

    expected = version(7.0) + scalar(1, 0.25) + scalar(2, 0.25)
    assert looks(Copies(), replace).files == {NAME: expected}


def test_a_file_that_is_deleted_stays_on_the_controller(work, looks):
    file = write(work / NAME, version())
    assert looks(Copies(), file.unlink, lambda: None).files == {NAME: version()}


def test_what_is_no_record_is_reported_once_with_its_place(work, looks):
    write(work / NAME, version(), bytes(40))
    write(work / "x" / NAME, b"this is not an event file")
    copies = looks(Copies(), lambda: None, lambda: None)
    assert copies.files == {NAME: version()}
    assert copies.unreadable == [
        (NAME, len(version()), "has no record there"), (f"x/{NAME}", 0, "has no record there"),
    ]  # fmt: skip


def test_a_record_with_a_wrong_checksum_costs_only_its_file(work, small_blocks):
    changed = record(b"x" * 2000)[:-1] + b"!"
    write(work / "a" / NAME, version(), changed, record(bytes(3600)))
    write(work / "b" / NAME, version())
    copies = Copies().follow()
    assert copies.files == {f"a/{NAME}": version(), f"b/{NAME}": version()}
    found = (f"a/{NAME}", len(version()), "has a record with a wrong checksum")
    assert copies.unreadable == [found]


def test_what_a_task_wrote_last_is_sent_before_the_stream_ends(work, monkeypatch):
    monkeypatch.setattr(event_stream, "caller_interrupts", lambda pause_s: pytest.fail("it waits"))
    write(work / NAME, version())
    assert Copies().follow().files == {NAME: version()}


def test_many_records_are_sent_in_several_batches_and_the_last_is_complete(work, small_blocks):
    noise = os.urandom(3600)
    for number in range(4):
        write(work / f"{number}" / NAME, version(), record(noise))
    batches = list(follow_events("p", "r", [TASK], []))
    assert [batch.complete for batch in batches] == [False] * (len(batches) - 1) + [True]
    assert len(batches) > 2


def test_a_task_that_never_started_has_no_events(root):
    assert [batch.complete for batch in follow_events("p", "r", ["worker:7"], [])] == [True]


@pytest.mark.parametrize(("cpu_s", "pause_s"), [(0.0, 2.0), (0.03, 6.0), (9.0, 10.0)])
def test_looks_are_as_rare_as_their_own_cost_demands(cpu_s, pause_s):
    assert event_stream._pause_s(cpu_s) == pytest.approx(pause_s)


def test_a_host_that_hashes_for_long_gives_signs_of_life(work, monkeypatch):
    monkeypatch.setattr(event_stream, "SIGN_S", 0.0)
    monkeypatch.setattr(event_stream, "BATCH_BYTES", 64)
    content = version() + scalar(1, 0.5) * 10
    write(work / NAME, content)
    present = [(TASK, NAME, len(content), hashlib.sha256(content).hexdigest())]
    batches = list(follow_events("p", "r", [TASK], present))
    assert len(batches) == 1 + -(-len(content) // 64)
    assert [batch.pieces for batch in batches] == [[]] * len(batches)
    assert [batch.complete for batch in batches] == [False] * (len(batches) - 1) + [True]


def test_the_longest_record_fits_into_an_answer(work, monkeypatch):
    monkeypatch.setattr(event_records, "MAX_RECORD", 1 << 20)  # as much less as what is allowed
    noise = os.urandom(1_000_000)
    write(work / "a" / NAME, record(noise[:700_000]))
    write(work / "b" / NAME, record(noise), version())
    sizes = [len(json.dumps(to_json(batch))) for batch in follow_events("p", "r", [TASK], [])]
    assert max(sizes) > 1 << 20
    assert max(sizes) <= FollowEvents.MAX_ANSWER_BYTES - (31 << 20) * 4 // 3
