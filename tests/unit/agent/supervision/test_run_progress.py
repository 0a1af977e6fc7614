"""Progress of a run, detected from the files that its chief writes."""

from __future__ import annotations

import os
import zipfile

import pytest

from tfdeploy.agent.supervision import run_progress
from tfdeploy.agent.supervision.run_progress import RunProgress


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "worker-0" / "work"
    (folder / "checkpoints").mkdir(parents=True)
    return folder


def progress_of(work):
    progress = RunProgress(str(work.parent), "checkpoints")
    progress.count()
    return progress


def write(path, age_s=0.0, text="x"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    time_s = path.stat().st_mtime - age_s
    os.utime(path, (time_s, time_s))


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("checkpoints/ckpt-3.index", True),
        ("results/epoch-2.csv", True),
        ("checkpoints/events.out.tfevents.1.host", False),
        ("checkpoints/train/plugins/profile/2026/host.xplane.pb", False),
    ],
)
def test_a_new_file_name_counts_unless_every_restart_creates_one(work, name, counts):
    progress = progress_of(work)
    before = progress.count()
    write(work / name)
    assert (progress.count() > before) == counts


MODELS = ["best.keras", "backup/latest.weights.h5", "model/variables/variables.index", "w.index"]
MODELS += ["weights.npz", "checkpoints/model.pt", "m.pth", "m.safetensors"]


@pytest.mark.parametrize(
    ("name", "counts"),
    [*((name, True) for name in MODELS), ("checkpoints/ckpt-3.index", False)],
)
def test_other_content_of_a_model_counts_if_its_name_has_no_step(work, name, counts):
    write(work / name, text="epoch 1")
    progress = progress_of(work)
    before = progress.count()
    write(work / name, text="epoch 2")
    assert (progress.count() > before) == counts


@pytest.mark.parametrize("name", [*MODELS, "model/saved_model.pb"])
def test_a_model_saved_again_with_the_same_content_does_not_count(work, name):
    write(work / name, age_s=60.0)
    progress = progress_of(work)
    before = progress.count()
    write(work / name)
    assert progress.count() == before


@pytest.mark.parametrize(("weights", "counts"), [("same", False), ("other", True)])
def test_the_weights_of_a_keras_file_count_and_not_the_time_of_its_save(work, weights, counts):
    write_keras(work / "best.keras", "same", "2026-01-01")
    progress = progress_of(work)
    before = progress.count()
    write_keras(work / "best.keras", weights, "2026-01-02")
    assert (progress.count() > before) == counts


def write_keras(file, weights, date):
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("metadata.json", date)
        archive.writestr("model.weights.h5", weights)


def test_a_file_that_is_too_large_to_read_counts_by_its_time(work, monkeypatch):
    monkeypatch.setattr(run_progress, "MAX_READ_BYTES", 0)
    write(work / "latest.weights.h5", age_s=60.0)
    progress = progress_of(work)
    before = progress.count()
    write(work / "latest.weights.h5")
    assert progress.count() > before


def test_nothing_new_is_no_progress(work):
    write(work / "checkpoints" / "ckpt-3.index")
    progress = progress_of(work)
    assert progress.count() == progress.count()


def test_files_in_a_linked_release_do_not_count(work, tmp_path):
    (tmp_path / "release").mkdir()
    progress = progress_of(work)
    before = progress.count()
    (work / "src").symlink_to(tmp_path / "release")
    write(tmp_path / "release" / "new.py")
    assert progress.count() == before
