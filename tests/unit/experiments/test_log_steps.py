"""The steps in a chief's log: named ones, those of a pattern, and the batches of Keras."""

from __future__ import annotations

import re

from tfdeploy.experiments.log_steps import LogSteps
from tfdeploy.experiments.scalars import Point


def read(*batches, pattern=None):
    """Return the steps after each batch of lines has arrived, a second after the one before."""
    steps = LogSteps(pattern and re.compile(pattern))
    for second, lines in enumerate(batches):
        steps.read(lines, float(second))
    return [(point.step, point.time_s) for point in steps.points]


def test_a_step_has_the_time_at_which_its_first_line_arrived():
    assert read(["start", "step = 5, loss = 1"], ["step=5 again", "global_step: 9"]) == [
        (5, 0.0),
        (9, 1.0),
    ]


def test_steps_only_rise():
    assert read(["step 9"], ["step 4"], ["step 10"]) == [(9, 0.0), (10, 2.0)]


def test_the_batches_of_keras_are_counted_through_all_epochs():
    bar = "\x1b[1m100/100\x1b[0m ━━━━━━━━━━━━━━━━━━━━ 1s 10ms/step - loss: 0.5"
    assert read(["Epoch 1/3", bar], ["Epoch 2/3", "40/100 ━━━━ 1s\r80/100 ━━━━ 1s"]) == [
        (100, 0.0),
        (140, 1.0),
        (180, 1.0),
    ]


def test_named_steps_replace_the_batches():
    lines = ["Epoch 1/3", "50/100 ━━━━ 1s"]
    assert read(lines, ["step = 7"], ["90/100 ━━━━ 1s", "step = 8"]) == [(7, 1.0), (8, 2.0)]


def test_a_pattern_is_the_only_source_if_there_is_one():
    pattern = r"iteration (?P<step>\d+)"
    assert read(["step = 4"], ["iteration 3"], pattern=pattern) == [(3, 1.0)]


def test_lines_without_a_step_give_no_point():
    steps = LogSteps(None)
    assert not steps.read(["Epoch 1/2", "10/10", "hello 3"], 0.0)
    assert steps.read(["step 1"], 1.0)
    assert steps.points == [Point(1, 1.0, None)]
