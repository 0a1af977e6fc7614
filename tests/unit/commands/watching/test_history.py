"""Rate, time left and losses of a training, from what a task reports."""

from __future__ import annotations

import pytest

from tfdeploy.commands.watching.history import Position, TrainingHistory, position_of
from tfdeploy.shared.records import LogProgress
from unit.branches.live.samples import keras
from unit.output.samples import make_report


def history_of(*moves):
    """Return the history of (time, report fields) pairs."""
    history = TrainingHistory()
    for now, fields in moves:
        history.add(make_report(**fields), now)
    return history


def steps(*pairs):
    return history_of(*((now, {"step": step, "step_age_s": 0.0}) for now, step in pairs))


@pytest.mark.parametrize(
    ("fields", "position"),
    [
        ({}, None),
        ({"log_progress": LogProgress()}, None),
        ({"step": 7}, Position("step", 7)),
        ({"log_progress": LogProgress(step=9)}, Position("step", 9)),
        ({"step": 7, "log_progress": LogProgress(step=9)}, Position("step", 7)),
        ({"log_progress": keras(3, 20)}, Position("step", 220, 1000)),
        ({"step": 7, "log_progress": keras(1, None)}, Position("step", 0, 1000)),
        ({"log_progress": LogProgress(epoch=3, epochs=10)}, Position("epoch", 2, 10)),
        ({"log_progress": LogProgress(batch=5, batches=20)}, Position("step", 5, 20)),
        ({"log_progress": LogProgress(epoch=3, epochs=0)}, None),
        ({"log_progress": LogProgress(epoch=3)}, Position("epoch", 3)),
        ({"log_progress": LogProgress(epoch=3, batch=50, batches=200)}, Position("epoch", 3.25)),
    ],
)
def test_the_position_is_what_the_task_says_with_its_end_if_it_is_known(fields, position):
    assert position_of(make_report(**fields)) == position


def test_the_rate_is_that_of_the_last_minute():
    assert steps((0, 0), (10, 100)).rate(10) == 10
    assert steps((0, 0), (1000, 100), (1030, 400), (1050, 500)).rate(1050) == 8


def test_rare_moves_still_have_a_rate():
    assert steps((0, 0), (120, 600), (240, 1800)).rate(240) == 10


def test_the_rate_falls_when_nothing_comes_and_the_silence_is_told():
    history = steps(*((second, 20 * second) for second in range(31)))
    assert [round(history.rate(now), 1) for now in (31, 61, 91, 331)] == [20.0, 10.0, 0.3, 0.1]
    assert [history.late_s(now) for now in (31, 40, 41, 90)] == [None, None, 11, 60]


def test_moves_that_are_rare_are_not_late_and_keep_their_rate():
    history = steps((0, 0), (120, 600), (240, 1800))
    assert (history.rate(350), history.late_s(350)) == (10, None)
    assert history.late_s(240 + 361) == 361


def test_the_time_between_a_stop_and_a_resume_is_no_training_time():
    """The task is READY for 2 s, and its newest event file is that of before the stop."""
    history = history_of(
        (1000, {"step": 400, "step_age_s": 300.0, "age_s": 2.0}),
        (1004, {"step": 410, "step_age_s": 0.0, "age_s": 6.0}),
        (1008, {"step": 490, "step_age_s": 0.0, "age_s": 10.0}),
    )
    assert history.rate(1008) == 20


def test_one_move_or_two_at_almost_the_same_time_have_no_rate():
    assert steps((0, 5)).rate(0) is None
    assert steps((0, 5), (0.5, 500)).rate(0.5) is None


def test_a_report_counts_from_the_time_at_which_the_task_wrote_it():
    history = history_of(
        (100, {"step": 0, "step_age_s": 0.0}), (130, {"step": 100, "step_age_s": 20.0})
    )
    assert history.rate(120) == 10


def test_the_batches_of_keras_count_from_its_log_not_from_its_last_events():
    """Its TensorBoard callback writes only at the end of an epoch."""
    history = history_of(
        *(
            (now, {"step": 0, "step_age_s": now + 9.0, "age_s": now, "log_progress": keras(1, now)})
            for now in range(0, 61, 2)
        )
    )
    assert history.rate(60) == 1
    assert history.late_s(60) is None


def test_a_training_that_falls_back_has_no_rate_until_it_moves_again():
    history = steps((0, 0), (10, 100), (20, 50))
    assert history.rate(20) is None
    history.add(make_report(step=70, step_age_s=0.0), 30)
    assert history.rate(30) == 2


def test_the_time_left_shrinks_between_two_moves():
    history = history_of((0, {"log_progress": keras(1, 0)}), (10, {"log_progress": keras(2, 0)}))
    assert history.left_s(10) == 90
    assert history.left_s(40) == 60
    assert history.left_s(41) is None  # the next move is late


def test_the_time_left_of_a_run_without_a_known_end_is_unknown():
    assert steps((0, 0), (10, 100)).left_s(10) is None


@pytest.mark.parametrize("loss", ["", "nan", "inf", "-inf", "1.2.3", "rm -rf"])
def test_a_loss_that_is_no_finite_number_is_left_out(loss):
    history = history_of((0, {"log_progress": keras(1, 1, loss)}))
    assert list(history.losses) == []


def test_a_repeated_report_adds_no_loss():
    moves = [(now, {"log_progress": keras(1, batch, "0.5")}) for now, batch in ((0, 1), (1, 1))]
    assert list(history_of(*moves).losses) == [0.5]
