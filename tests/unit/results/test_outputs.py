"""Files of a checkpoint that is also an output are stored once on the controller."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from tfdeploy.folders.own_folder import OwnFolder
from tfdeploy.results.outputs import link_checkpoints
from tfdeploy.results.run_folder import checkpoint_outputs
from tfdeploy.results.units import is_in
from tfdeploy.shared.protocol.outputs import Unit

NAMES = ("ckpt-7.data-00000-of-00001", "ckpt-7.index")


def stored(tmp_path, checkpoint_dir):
    """Return a run that has a checkpoint, and the output that is the same on its host."""
    training = SimpleNamespace(checkpoint_dir=checkpoint_dir)
    inventory = SimpleNamespace(training=training)
    run = SimpleNamespace(open=lambda: OwnFolder.at(tmp_path), inventory=inventory)
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
    assert is_in(unit, OwnFolder.at(tmp_path / "outputs"))
    for name in NAMES:
        output = checkpoint_outputs(run).path / name
        assert output.samefile(tmp_path / "checkpoints" / name)


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


def test_an_output_that_is_linked_replaces_a_link_and_not_its_target(tmp_path):
    run, unit = stored(tmp_path, ".")
    (tmp_path / "outputs").mkdir()
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "outputs" / NAMES[0]).symlink_to(tmp_path / "mine")
    link_checkpoints(run, [unit])
    assert is_in(unit, OwnFolder.at(tmp_path / "outputs"))
    assert (tmp_path / "mine").read_text() == "mine"


def test_no_output_is_linked_below_a_link(tmp_path):
    run, unit = stored(tmp_path, "checkpoints")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "outputs").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="it is a link"):
        link_checkpoints(run, [unit])
    assert not [*(tmp_path / "elsewhere").iterdir()]


def test_a_file_system_without_hard_links_gets_a_copy(tmp_path, monkeypatch):
    def no_links(source, target, **folders):
        raise PermissionError

    monkeypatch.setattr(os, "link", no_links)
    for name, text in (("one", "weights"), ("other", "older")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(text)
    os.utime(tmp_path / "one" / "file", ns=(5, 5))
    OwnFolder.at(tmp_path / "one").give("file", OwnFolder.at(tmp_path / "other"))
    assert (tmp_path / "other" / "file").read_text() == "weights"
    assert (tmp_path / "other" / "file").stat().st_mtime_ns == 5
