"""Records are read as they were written, and files are never partial."""

from __future__ import annotations

import json
import os
import threading

import pytest
from support.builders import make_launch

from tfdeploy.shared import records
from tfdeploy.shared.protocol.message import parse
from tfdeploy.shared.records import Launch, TaskReport, TaskState

RECORDS = [
    make_launch(env={"A": "é😀\n"}, port=2222, gpus=[1]),
    TaskState("READY", 1.5, pid=7),
    TaskReport("worker:0", "FAILED", 2.0, 7, -9, 1, "killed", log=["a", "b"]),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_is_unchanged_after_json(record):
    sent = json.loads(json.dumps(records.to_json(record)))
    assert parse(type(record), sent) == record


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_unknown_fields_are_ignored(record):
    with_new_field = {**records.to_json(record), "since_then": 1}
    assert parse(type(record), with_new_field) == record


def test_a_record_that_lacks_a_field_is_refused():
    with pytest.raises(ValueError, match="Launch has no"):
        parse(Launch, {"project": "p"})


def test_names_that_are_no_utf_8_can_be_stored(tmp_path):
    path, name = os.fspath(tmp_path / "saves.json"), os.fsdecode(b"a\xff\n")
    records.write(path, [name])
    assert records.read(path) == [name]


def test_a_reader_never_sees_a_partial_file(tmp_path):
    path = os.fspath(tmp_path / "state.json")
    records.write(path, ["old"] * 999)
    stop = threading.Event()

    def write():
        while not stop.is_set():
            records.write(path, ["new"] * 999)
            records.write(path, ["old"] * 999)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert {len(records.read(path)) for _ in range(200)} == {999}
    finally:
        stop.set()
        writer.join()
    assert os.listdir(tmp_path) == ["state.json"]
