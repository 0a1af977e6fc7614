"""What a training and its validation reached."""

from __future__ import annotations

import math

import pytest

from tfdeploy.branches.measuring.metrics import Metric, Reached, main_loss, metrics
from tfdeploy.branches.measuring.scalars import Point


def series(*values):
    return tuple(Point(n, 0.0, value) for n, value in enumerate(values))


def test_each_metric_has_its_training_and_its_validation():
    found = metrics(
        {
            "epoch_accuracy": series(0.5, 0.75, 0.625),
            "epoch_learning_rate": series(0.1, 0.1),
            "epoch_loss": series(4.0, 2.0, 3.0),
            "validation/epoch_loss": series(5.0, 6.0),
            "validation/evaluation_loss_vs_iterations": series(5.0, 6.0),
            "global_step/sec": series(50.0),
        }
    )
    assert found == (
        Metric("epoch_loss", False, Reached(3.0, 2.0), Reached(6.0, 5.0)),
        Metric("epoch_accuracy", True, Reached(0.625, 0.75), None),
    )


@pytest.mark.parametrize(
    "names",
    [
        ("loss", "val_loss"),
        ("loss", "test/loss"),
        ("train/loss", "val/loss"),
        ("loss", "evaluator-0/eval/loss"),
        ("loss", "eval_holdout/loss"),
        ("loss", "logs/fit/validation/loss"),
    ],
)
def test_validations_are_found_however_they_are_called(names):
    [metric] = metrics({names[0]: series(1.0), names[1]: series(2.0)})
    assert metric == Metric("loss", False, Reached(1.0, 1.0), Reached(2.0, 2.0))


def test_a_training_that_ends_with_nan_says_so():
    [metric] = metrics({"loss": series(2.0, 1.0, math.nan)})
    assert (math.isnan(metric.training.last), metric.training.best) == (True, 1.0)
    assert metrics({"loss": series(math.nan)}) == ()


@pytest.mark.parametrize(
    ("names", "loss"),
    [
        (["accuracy", "epoch_loss", "validation/epoch_loss", "z_loss"], "epoch_loss"),
        (["epoch_loss", "loss"], "loss"),
        (["eval/loss", "regularization_loss"], "regularization_loss"),
        (["evaluator-0/loss"], "evaluator-0/loss"),
        (["accuracy"], ""),
    ],
)
def test_the_main_loss_is_that_of_the_training(names, loss):
    assert main_loss(names) == loss
