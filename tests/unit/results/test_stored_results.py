"""Which results of a host count as collected."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from tfdeploy.folders.own_folder import OwnFolder
from tfdeploy.results.stored_results import stored_results
from tfdeploy.shared.protocol.outputs import TaskResults, Unit

CHECKPOINT = "model.ckpt-7"


def on_host(kind, path, mtime_ns, *, replica=False, slot=False):
    """Return a host that has one file of 3 bytes of the chief of run "r", or of another `slot`."""
    unit = Unit(path, kind, {path: (3, mtime_ns)})
    answer = TaskResults("r", "worker:0", not slot, [unit], [], "", replica, slot=slot)
    return SimpleNamespace(host="a", stream=lambda request, silence_s: iter([answer]))


def is_collected(host, base):
    (result,) = stored_results(host, "p", ["r"], OwnFolder.at(base))
    return result.collected


@pytest.mark.parametrize(("on_controller", "own", "of_replica"), [
    (4, False, False), (5, True, True), (6, False, True),
])  # fmt: skip
def test_only_a_replica_may_be_older_than_the_controllers_file(
    tmp_path, on_controller, own, of_replica
):
    file = tmp_path / "r/outputs/history.csv"
    file.parent.mkdir(parents=True)
    file.write_text("abc")
    os.utime(file, ns=(on_controller, on_controller))
    assert is_collected(on_host("file", "history.csv", 5), tmp_path) is own
    assert is_collected(on_host("file", "history.csv", 5, replica=True), tmp_path) is of_replica


def test_the_results_of_all_slots_of_trials_are_together(tmp_path):
    file = tmp_path / "r/outputs/trials/7/model.keras"
    file.parent.mkdir(parents=True)
    file.write_text("abc")
    os.utime(file, ns=(5, 5))
    assert is_collected(on_host("file", "trials/7/model.keras", 5, slot=True), tmp_path)
    assert not is_collected(on_host("file", "trials/7/model.keras", 6, slot=True), tmp_path)


def test_a_later_checkpoint_on_the_controller_counts_only_if_it_is_complete(tmp_path):
    folder = tmp_path / "r/checkpoints"
    folder.mkdir(parents=True)
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-9"\n')
    (folder / "model.ckpt-9.data-00000-of-00001").write_text("data")
    host = on_host("checkpoint", CHECKPOINT, 5)
    assert not is_collected(host, tmp_path)
    (folder / "model.ckpt-9.index").write_text("index")
    assert is_collected(host, tmp_path)
    os.utime(folder / "model.ckpt-9.index", ns=(4, 4))
    assert not is_collected(host, tmp_path), "the program has counted from the beginning again"
