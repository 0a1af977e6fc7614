"""A file is hashed while the real rsync writes it, and a hash is only of what the file is now."""

from __future__ import annotations

import hashlib
import subprocess
import time
from random import Random

import pytest
from waiting import until

from tfdeploy.transfer.checkpoints.arrival_hashes import ArrivalHashes
from tfdeploy.transport.rsync import PARTIAL

CONTENT = Random(1).randbytes(8 << 20)
NAME = "model.data-00000-of-00001"


@pytest.fixture
def folders(tmp_path):
    """The folder of a host with one file, and the one that it is fetched into."""
    source, dest = tmp_path / "source", tmp_path / "dest"
    source.mkdir()
    dest.mkdir()
    (source / NAME).write_bytes(CONTENT)
    return source, dest


def rsync(source, dest, *options):
    return subprocess.Popen(
        ["rsync", "-t", "--no-whole-file", PARTIAL, *options, source / NAME, dest]
    )


def slowly_fetched(source, dest):
    """Fetch the file in about a second; return the hash that is known then."""
    with ArrivalHashes(dest, [NAME]) as hashes:
        assert rsync(source, dest, "--bwlimit=8000").wait() == 0
        until(lambda: hashes.get(dest / NAME), "the hash")
        return hashes.get(dest / NAME)


def test_a_file_is_hashed_while_it_arrives(folders):
    assert slowly_fetched(*folders) == hashlib.sha256(CONTENT).hexdigest()


def test_a_file_that_was_replaced_has_no_known_hash(folders):
    source, dest = folders
    with ArrivalHashes(dest, [NAME]) as hashes:
        assert rsync(source, dest, "--bwlimit=8000").wait() == 0
        until(lambda: hashes.get(dest / NAME), "the hash")
        (dest / "other").write_bytes(CONTENT[:-1] + b"?")
        (dest / "other").replace(dest / NAME)
        assert hashes.get(dest / NAME) is None


def test_a_transfer_that_ends_too_early_has_no_known_hash(folders):
    source, dest = folders
    with ArrivalHashes(dest, [NAME]) as hashes:
        fetching = rsync(source, dest, "--bwlimit=4000")
        until(lambda: any(file.stat().st_size > 1 << 20 for file in dest.iterdir()), "a part")
        fetching.terminate()
        fetching.wait()
    assert hashes.get(dest / NAME) is None


def test_only_the_wanted_files_are_read(folders):
    source, dest = folders
    with ArrivalHashes(dest, ["another"]) as hashes:
        assert rsync(source, dest, "--bwlimit=16000").wait() == 0
        time.sleep(0.1)
    assert hashes.get(dest / NAME) is None
