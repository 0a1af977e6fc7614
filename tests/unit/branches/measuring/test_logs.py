"""What a program prints of its training: named steps, the batches of Keras, and losses."""

from __future__ import annotations

import pytest

from tfdeploy.branches.measuring.run_report import charts
from tfdeploy.branches.measuring.run_report.over_time import TrainedRun
from tfdeploy.branches.measuring.scalars import LogSteps, Point, parse_losses


def read_steps(*batches):
    """Return the steps after each batch of lines has arrived, a second after the one before."""
    steps = LogSteps()
    for second, lines in enumerate(batches):
        steps.read(lines, float(second))
    return [(point.step, point.time_s) for point in steps.points]


def test_a_step_has_the_time_at_which_its_first_line_arrived():
    assert read_steps(["start", "step = 5, loss = 1"], ["step=5 again", "global_step: 9"]) == [
        (5, 0.0),
        (9, 1.0),
    ]


def test_steps_only_rise():
    assert read_steps(["step 9"], ["step 4"], ["step 10"]) == [(9, 0.0), (10, 2.0)]


def test_the_batches_of_keras_are_counted_through_all_epochs():
    bar = "\x1b[1m100/100\x1b[0m ━━━━━━━━━━━━━━━━━━━━ 1s 10ms/step - loss: 0.5"
    assert read_steps(["Epoch 1/3", bar], ["Epoch 2/3", "40/100 ━━━━ 1s\r80/100 ━━━━ 1s"]) == [
        (100, 0.0),
        (140, 1.0),
        (180, 1.0),
    ]


def test_named_steps_replace_the_batches():
    lines = ["Epoch 1/3", "50/100 ━━━━ 1s"]
    assert read_steps(lines, ["step = 7"], ["90/100 ━━━━ 1s", "step = 8"]) == [(7, 1.0), (8, 2.0)]


def test_lines_without_a_step_give_no_point():
    steps = LogSteps()
    assert not steps.read(["Epoch 1/2", "10/10", "hello 3"], 0.0)
    assert steps.read(["step 1"], 1.0)
    assert steps.points == [Point(1, 1.0, None)]


def losses(text):
    [(name, series)] = parse_losses(text).items()
    return name, [(point.step, point.value) for point in series]


def test_losses_beside_steps_are_read_and_a_restart_replaces_them():
    text = "step 10 loss 2.5\nhello\nstep 20 loss 1e-1\nstep 10 loss 2.0\n"
    assert losses(text) == ("loss", [(10, 2.0), (20, 0.1)])


def test_the_last_loss_of_each_epoch_of_keras_is_read():
    bar = "\r 1/157 ━━━ 1s 5ms/step - loss: 9.0\r157/157 ━━━ 2s - accuracy: 0.9 - loss: {}\n"
    text = "Epoch 1/3\n" + bar.format(2.0) + "\x1b[1mEpoch 2/3\n" + bar.format(1.5)
    assert losses(text) == ("epoch_loss", [(1, 2.0), (2, 1.5)])


@pytest.mark.parametrize("text", ["", "step 1 loss 2\n", "loss 3\nstep 4\n", "val_loss: 1 step 2"])
def test_one_loss_or_none_is_no_curve(text):
    assert parse_losses(text) == {}


def test_they_are_drawn_with_their_unit():
    found = parse_losses("step 1 loss 300\nstep 2 loss nan\nstep 3 loss 1\n")
    [chart], _ = charts.draw([TrainedRun("a", 0.0, {}, found)], "x")
    assert chart.description.startswith("The loss over steps. a: from 300 to 1")
    assert ">step</text>" in chart.svg
