"""A host whose rsync lies. tfdeploy only sends with rsync: no file of the controller is written."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tfdeploy.errors import TransferFailed
from tfdeploy.transport.rsync import RsyncTransfers

LIAR = Path(__file__).parents[1] / "support/scripts/lying_rsync.py"
ENDLESS = "it prints without end: "


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("stderr", f"{ENDLESS}x"),  # it would fill the controller's disk
        ("errors", ENDLESS),
        ("lines", ENDLESS),
        ("line", f"{ENDLESS}x"),  # it would fill the memory
        ("indices", "rsync exited with"),  # of files that were never offered
    ],
)
def test_a_lying_rsync_ends_its_own_push_with_one_sentence(tmp_path, kind, message):
    (tmp_path / "file").write_text("content")
    liar = RsyncTransfers("liar", lambda: [sys.executable, str(LIAR), kind])
    with pytest.raises(TransferFailed) as failed:
        liar.push(tmp_path, "/nowhere", ["file"])
    assert failed.value.message.startswith(message)
    assert len(failed.value.message) < 2000
    assert "\x1b" not in failed.value.message
    assert [*tmp_path.iterdir()] == [tmp_path / "file"]
