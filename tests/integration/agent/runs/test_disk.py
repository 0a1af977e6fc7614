"""The verb `disk` reports a project's runs and releases as they are stored on this host."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from support.host_runs import OLD_S, create_release

from tfdeploy.agent import paths
from tfdeploy.agent.runs import disk

# Sizes


def du(path):
    result = subprocess.run(["du", "-s", "--block-size=1", path], capture_output=True, check=True)
    return int(result.stdout.split()[0])


def test_the_size_of_a_tree_is_what_du_reports(tmp_path):
    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "deep/er/file").write_bytes(b"x" * 100_000)
    (tmp_path / "small").write_text("x")
    assert disk.used_bytes(os.fspath(tmp_path)) == du(tmp_path) >= 100_000


# Releases and leftovers


def test_a_release_is_listed_with_its_size_and_age(root):
    folder = create_release("f00d")
    (release,) = disk.disk("p").releases
    assert (release.release, release.bytes) == ("f00d", du(folder))
    assert 0 <= release.age_s < OLD_S


def test_a_push_that_is_older_than_a_day_is_a_leftover(root, monkeypatch):
    incoming = Path(paths.incoming("p", "f00d"))
    incoming.mkdir(parents=True)
    monkeypatch.setattr(disk, "ABANDONED_AFTER_S", -1.0)  # the ctime of a folder can't be set
    assert disk.disk("p").store_left_bytes == du(incoming)
