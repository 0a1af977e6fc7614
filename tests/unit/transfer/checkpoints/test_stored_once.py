"""Files of a checkpoint that is also an output are stored once on the controller."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from tfdeploy.transfer.checkpoints.stored_once import checkpoint_output, link_checkpoints, link_file
from tfdeploy.transfer.units import Unit

NAMES = ("ckpt-7.data-00000-of-00001", "ckpt-7.index")


def stored(tmp_path, checkpoint_dir):
    """Return a run that has a checkpoint, and the output that is the same on its host."""
    training = SimpleNamespace(checkpoint_dir=checkpoint_dir)
    run = SimpleNamespace(folder=tmp_path, inventory=SimpleNamespace(training=training))
    (tmp_path / "checkpoints").mkdir()
    for name in NAMES:
        (tmp_path / "checkpoints" / name).write_text(name)
        os.utime(tmp_path / "checkpoints" / name, ns=(5, 5))
    folder = os.path.normpath(checkpoint_dir)
    prefix = "" if folder == "." else f"{folder}/"
    files = {f"{prefix}{name}": (len(name), 5) for name in NAMES}
    return run, Unit(f"{prefix}ckpt-7", "set", files)


@pytest.mark.parametrize("checkpoint_dir", ["checkpoints", "a//b/", ".", "/nas/run"])
def test_an_output_that_is_in_checkpoints_is_linked(tmp_path, checkpoint_dir):
    run, unit = stored(tmp_path, checkpoint_dir)
    link_checkpoints(run, [unit])
    assert unit.is_in(tmp_path / "outputs")
    for name in NAMES:
        assert checkpoint_output(run, name).samefile(tmp_path / "checkpoints" / name)


@pytest.mark.parametrize("change", ["kind", "folder", "time"])
def test_another_output_is_not_linked(tmp_path, change):
    run, unit = stored(tmp_path, "checkpoints")
    if change == "kind":
        unit = Unit(unit.path, "file", unit.files)
    elif change == "folder":
        unit = Unit("other/ckpt-7", "set", {f"other/{name}": (len(name), 5) for name in NAMES})
    else:
        os.utime(tmp_path / "checkpoints" / NAMES[0], ns=(6, 6))
    link_checkpoints(run, [unit])
    assert not (tmp_path / "outputs").exists()


def test_a_file_system_without_hard_links_gets_a_copy(tmp_path, monkeypatch):
    def no_links(source, target):
        raise PermissionError

    monkeypatch.setattr(os, "link", no_links)
    (tmp_path / "one").write_text("weights")
    (tmp_path / "other").write_text("older")
    link_file(tmp_path / "one", tmp_path / "other")
    assert (tmp_path / "other").read_text() == "weights"
