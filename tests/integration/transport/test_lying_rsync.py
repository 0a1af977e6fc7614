"""A host whose rsync sends what it wants: nothing arrives but requested files, and not too much."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tfdeploy.errors import TransferFailed
from tfdeploy.transport import TOO_MUCH, rsync
from tfdeploy.transport.rsync import RsyncTransfers

LYING_RSYNC = Path(__file__).parents[2] / "support/scripts/lying_rsync.py"
KEPT = "kept"  # a file that was there before


@pytest.fixture
def pull(tmp_path, monkeypatch):
    """Return a function that fetches `log` and `sub/log` from a host that sends files of these
    names and sizes, and returns what is then in the folder."""
    lies, dest = tmp_path / "lies", tmp_path / "outer/dest"
    dest.mkdir(parents=True)
    (dest / KEPT).write_text(KEPT)
    monkeypatch.setenv("LIES", os.fspath(lies))
    lies.mkdir()
    # The two sides may wait for each other after what neither can read.
    monkeypatch.setattr(rsync, "COMMON", (*rsync.COMMON[:-1], "--timeout=2"))

    def run(flags="", **sizes):
        monkeypatch.setenv("FLAGS", flags)
        for name, size in sizes.items():
            (lies / name).parent.mkdir(parents=True, exist_ok=True)
            with (lies / name).open("wb") as file:
                file.truncate(size)
        host = RsyncTransfers("h", lambda: [sys.executable, "-S", os.fspath(LYING_RSYNC)])
        try:
            host.pull("/source", dest, ["log", "sub/log"], max_bytes=1 << 20)
        finally:
            found = {
                str(path.relative_to(tmp_path / "outer")): path.lstat().st_size
                for path in (tmp_path / "outer").rglob("*")
                if not path.is_dir() or path.is_symlink()
            }
            assert found.pop(f"dest/{KEPT}") == len(KEPT)
            run.found = found

    return run


def test_requested_files_arrive(pull):
    """What follows differs from this only in the lie."""
    pull(log=10, **{"sub/log": 20})
    assert pull.found == {"dest/log": 10, "dest/sub/log": 20}


@pytest.mark.parametrize(
    "name",
    [
        ".bashrc",
        "kept",
        "sub/other",
        "log/inside",
        "log/sub/log",
        "sub/log/inside",
        ".rsync-filter",
    ],
)
def test_another_name_is_refused(pull, name):
    with pytest.raises(TransferFailed, match=r"rsync exited with (4|12)\b"):
        pull(**{name: 10})
    assert pull.found == {}


def test_a_file_without_end_is_cut(pull):
    with pytest.raises(TransferFailed, match=TOO_MUCH):
        pull(log=1 << 30)
    assert sum(pull.found.values()) <= 1 << 20


@pytest.mark.parametrize("flags", ["l", "D", "lD"])
def test_links_and_fifos_are_refused(pull, tmp_path, flags):
    (tmp_path / "lies/log").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "lies/sub")
    with pytest.raises(TransferFailed):
        pull(flags, other=10)
    assert pull.found == {}
