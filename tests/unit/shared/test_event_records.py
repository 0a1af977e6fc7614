"""Records of event files are read whole or not at all."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.events import record, scalar, version

from tfdeploy.shared import event_records
from tfdeploy.shared.event_records import Damaged, read, whole_size

BLOCK = 1 << 12  # bytes, instead of 1 MB
CHAIN = [version(), scalar(1, 0.5), scalar(2, 0.25), record(b"x" * 300)]
BYTES = b"".join(CHAIN)
ENDS = [sum(map(len, CHAIN[:count])) for count in range(len(CHAIN) + 1)]


def test_every_cut_of_a_file_ends_at_the_last_whole_record():
    for cut in range(len(BYTES) + 1):
        assert whole_size(BYTES[:cut]) == max(end for end in ENDS if end <= cut)


def test_a_last_record_whose_data_is_not_on_the_disk_yet_is_left_out():
    """A file can have its size before its content, for example on NFS."""
    for size in (4, 5, 100):
        torn = BYTES[:-size] + bytes(size)
        assert whole_size(torn) == ENDS[-2]


@pytest.mark.parametrize("data", [b"\0" * 40, b"no event file, but a longer text", BYTES[3:]])
def test_what_starts_with_no_record_is_refused(data):
    with pytest.raises(Damaged, match="has no record there"):
        whole_size(data)


def test_what_precedes_damage_is_kept():
    assert whole_size(BYTES + bytes(40)) == len(BYTES)


@given(st.binary(max_size=64))
def test_no_bytes_after_a_record_change_where_it_ends(noise):
    assert whole_size(version() + noise) >= len(version())


def test_a_file_is_read_block_by_block(monkeypatch):
    monkeypatch.setattr(event_records, "BLOCK", BLOCK)
    blocks, chain = [], b"".join(scalar(step, 1.0) for step in range(BLOCK // 32))
    assert len(chain) > BLOCK
    while data := read(io.BytesIO(chain), sum(map(len, blocks)), len(chain)):
        assert len(data) <= BLOCK
        blocks.append(data)
    assert b"".join(blocks) == chain
    assert len(blocks) == 2


def test_a_record_longer_than_a_block_is_read_when_it_is_whole(monkeypatch):
    monkeypatch.setattr(event_records, "BLOCK", 64)
    long = record(b"picture" * 100)
    file = io.BytesIO(long + version())
    assert read(file, 0, len(long) - 1) == b""
    assert read(file, 0, len(long)) == long


def test_a_record_that_is_too_long_is_refused(monkeypatch):
    monkeypatch.setattr(event_records, "BLOCK", 64)
    monkeypatch.setattr(event_records, "MAX_RECORD", 1 << 20)
    long = record(b"x" * (1 << 20))
    with pytest.raises(Damaged, match="has a record of 1 MB; up to 1 MB are read"):
        read(io.BytesIO(long), 0, len(long))


@pytest.mark.parametrize("size", [200, 240, 250])  # within a block, as long as one, longer
def test_a_record_with_a_wrong_checksum_is_refused_only_if_another_one_follows(monkeypatch, size):
    monkeypatch.setattr(event_records, "BLOCK", 256)
    changed = record(b"x" * size)[:-1] + b"!"
    assert read(io.BytesIO(changed), 0, len(changed)) == b""
    content = changed + record(b"y" * 500)
    with pytest.raises(Damaged, match="has a record with a wrong checksum"):
        read(io.BytesIO(content), 0, len(content))
