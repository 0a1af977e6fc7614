"""Losses in logs: beside steps, or of the epochs of Keras, also with its progress bars."""

from __future__ import annotations

import pytest

from tfdeploy.experiments.run_report.training import charts
from tfdeploy.experiments.run_report.training.charts import TrainedRun
from tfdeploy.experiments.run_report.training.log_losses import NO_LOSSES, parse


def losses(text):
    found = parse(text)
    return found.unit, [(point.step, point.value) for point in found.series]


def test_losses_beside_steps_are_read_and_a_restart_replaces_them():
    text = "step 10 loss 2.5\nhello\nstep 20 loss 1e-1\nstep 10 loss 2.0\n"
    assert losses(text) == ("step", [(10, 2.0), (20, 0.1)])


def test_the_last_loss_of_each_epoch_of_keras_is_read():
    bar = "\r 1/157 ━━━ 1s 5ms/step - loss: 9.0\r157/157 ━━━ 2s - accuracy: 0.9 - loss: {}\n"
    text = "Epoch 1/3\n" + bar.format(2.0) + "\x1b[1mEpoch 2/3\n" + bar.format(1.5)
    assert losses(text) == ("epoch", [(1, 2.0), (2, 1.5)])


@pytest.mark.parametrize("text", ["", "step 1 loss 2\n", "loss 3\nstep 4\n", "val_loss: 1 step 2"])
def test_one_loss_or_none_is_no_curve(text):
    assert parse(text) == NO_LOSSES


def test_they_are_drawn_with_their_unit():
    found = parse("step 1 loss 300\nstep 2 loss nan\nstep 3 loss 1\n")
    [chart], _ = charts.draw([TrainedRun("a", 0.0, {}, found)], "x")
    assert chart.description.startswith("The loss over steps. a: from 300 to 1")
    assert ">step</text>" in chart.svg
