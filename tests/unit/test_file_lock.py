"""A lock is held by one command, and its file is never opened through a link."""

from __future__ import annotations

import pytest

from tfdeploy.errors import RunError
from tfdeploy.file_lock import locked

REFUSAL = RunError("another collect is running")


def test_a_lock_is_held_once_and_free_afterwards(tmp_path):
    file = tmp_path / "lock"
    with (
        locked(file, REFUSAL),
        pytest.raises(RunError, match="another collect"),
        locked(file, REFUSAL),
    ):
        pass
    with locked(tmp_path / "lock", REFUSAL):
        pass


def test_a_link_in_place_of_the_lock_is_refused_and_its_target_kept(tmp_path):
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "lock").symlink_to(tmp_path / "victim")
    with pytest.raises(RunError, match=r"can't lock .*lock"), locked(tmp_path / "lock", REFUSAL):
        pass
    assert (tmp_path / "victim").read_text() == "kept"
