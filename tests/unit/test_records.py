"""The wire format: what is written is read, by older and newer versions, whole or not at all."""

from __future__ import annotations

import json
import os
import threading

import pytest

from tfdeploy.agent import records
from tfdeploy.agent.records import Launch, TaskReport, TaskState
from unit.made import launch

RECORDS = [
    launch(env={"A": "é😀\n"}, port=2222, gpus=[1]),
    TaskState("READY", 1.5, pid=7),
    TaskReport("worker:0", "FAILED", 2.0, 7, -9, 1, "killed", log=["a", "b"]),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_survives_the_way(record):
    sent = json.loads(json.dumps(records.to_json(record)))
    assert records.from_json(type(record), sent) == record


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_what_a_newer_version_adds_is_left_out(record):
    newer = {**records.to_json(record), "since_then": 1}
    assert records.from_json(type(record), newer) == record


def test_a_record_that_lacks_a_field_is_refused():
    with pytest.raises(TypeError):
        records.from_json(Launch, {"project": "p"})


def test_a_file_is_seen_whole_whenever_it_is_read(tmp_path):
    path = os.fspath(tmp_path / "state.json")
    records.write(path, ["old"] * 999)
    ended = threading.Event()

    def write():
        while not ended.is_set():
            records.write(path, ["new"] * 999)
            records.write(path, ["old"] * 999)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert {len(records.read(path)) for _ in range(200)} == {999}
    finally:
        ended.set()
        writer.join()
    assert os.listdir(tmp_path) == ["state.json"]
