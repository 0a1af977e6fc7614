"""The objective of a trial, read from what it writes while it trains."""

from __future__ import annotations

import json
import os

import pytest
from support import events

from tfdeploy.shared.objective import Objective


@pytest.fixture
def trial(tmp_path):
    folder = tmp_path / "7"
    folder.mkdir()
    return folder


def write_scalars(folder, tag, points):
    events.write(folder, events.version(), *(events.scalar(*point, tag=tag) for point in points))


def objective(trial, name="val_accuracy", mode="max"):
    found = Objective(name, mode, str(trial), f"{trial}.log")
    found.read()
    return found


def test_a_csv_of_keras_gives_a_value_for_each_epoch(trial):
    (trial / "log.csv").write_text("epoch,loss,val_accuracy\n0,1.0,0.5\n1,0.9,0.8\n2,0.8,0.7\n")
    found = objective(trial)
    assert found.points == [(0, 0.5), (1, 0.8), (2, 0.7)]
    assert found.best() == (0.8, 1)
    assert found.rungs() == [0.5, 0.8]
    assert objective(trial, "loss", "min").best() == (0.8, 2)


def test_a_file_that_was_there_before_the_trial_gives_no_value(trial):
    for name in ("old.csv", "new.csv"):
        (trial / name).write_text(
            "epoch,loss\n0,1.5\n" if name == "old.csv" else "epoch,loss\n0,7.5\n"
        )
    log = f"{trial}.log"
    found = Objective("loss", "min", str(trial), log, lambda entry: entry.name == "old.csv")
    found.read()
    assert found.best() == (7.5, 0)


def test_lines_of_json_in_a_file_or_in_the_log_give_values(trial):
    lines = [json.dumps({"step": step, "val_accuracy": step / 10}) for step in (1, 2)]
    (trial / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert objective(trial).points == [(1, 0.1), (2, 0.2)]
    (trial / "metrics.jsonl").unlink()
    trial.with_suffix(".log").write_text('starts\n{"val_accuracy": 0.3}\n{"val_accuracy": 0.4}\n')
    assert objective(trial).points == [(0, 0.3), (1, 0.4)]


def test_the_lines_of_fit_give_the_last_value_of_each_epoch(trial):
    bar = "\r1/2 ━━━━ 1s 9ms/step - accuracy: 0.1 - loss: 2.0"
    end = "\r2/2 ━━━━ 1s 9ms/step - accuracy: 0.{0} - loss: 1.0 - val_accuracy: 0.{0}1\n"
    text = "".join(f"Epoch {n}/2\n{bar}{end.format(n)}" for n in (1, 2))
    trial.with_suffix(".log").write_text(text)
    assert objective(trial).points == [(1, 0.11), (2, 0.21)]
    assert objective(trial, "accuracy").points == [(1, 0.1), (2, 0.2)]


def test_event_files_give_a_tag_of_the_folder_of_the_validation(trial):
    write_scalars(trial / "logs" / "validation", "epoch_accuracy", [(0, 0.5), (1, 0.75)])
    write_scalars(trial / "logs" / "train", "epoch_accuracy", [(0, 0.25), (1, 0.5)])
    assert objective(trial).points == [(0, 0.5), (1, 0.75)]
    assert objective(trial, "epoch_accuracy").points == [(0, 0.25), (1, 0.5)]
    assert objective(trial, "logs/validation/epoch_accuracy").points == [(0, 0.5), (1, 0.75)]


def test_only_what_is_new_is_read_and_a_line_when_it_is_complete(trial):
    log = trial.with_suffix(".log")
    log.write_text("step 1 loss 0.5\nstep 2 lo")
    found = objective(trial, "loss", "min")
    assert found.points == [(1, 0.5)]
    with log.open("a") as file:
        file.write("ss 0.25\n")
    found.read()
    assert found.points == [(1, 0.5), (2, 0.25)]


def test_no_number_is_never_the_best(trial):
    (trial / "log.csv").write_text("epoch,loss\n0,nan\n1,0.5\n2,inf\n3,nan\n")
    found = objective(trial, "loss", "min")
    assert found.best() == (0.5, 1)
    assert found.rungs() == [None, 0.5]


def test_the_scalars_that_were_found_are_named(trial):
    (trial / "log.csv").write_text("epoch,loss,val_loss\n0,1,2\n")
    trial.with_suffix(".log").write_text("trained 5 epochs\n")
    found = objective(trial)
    assert found.best() == (None, None)
    assert list(found.names) == ["loss", "val_loss"]


def test_a_version_in_the_log_is_no_number(trial):
    trial.with_suffix(".log").write_text("TensorFlow version: 2.21.0\nstep 1 loss: 0.5.\nx=1...\n")
    assert objective(trial, "loss", "min").points == [(1, 0.5)]


def test_a_csv_may_have_whole_arrays(trial):
    array = " ".join(["0.5"] * 50_000)
    (trial / "log.csv").write_text(f"epoch,weights,loss\n0,{array},0.5\n1,{array},0.25\n")
    assert objective(trial, "loss", "min").points == [(0, 0.5), (1, 0.25)]


def test_a_log_that_is_no_regular_file_is_not_waited_for(trial):
    os.mkfifo(f"{trial}.log")
    assert objective(trial).points == []
