"""When tasks that meet once start again together."""

from __future__ import annotations

from support.builders import make_launch

from tfdeploy.agent.supervision.rounds import Rounds


def make_rounds(index, master_port=29500):
    rounds = Rounds(make_launch(index=index, ready="rendezvous", master_port=master_port))
    rounds.start_attempt()
    return rounds


def test_a_task_that_learns_of_a_loss_ends_and_starts_in_the_new_round():
    lost, other = make_rounds(1), make_rounds(2)
    lost.lose_attempt()
    other.note(lost.started, "worker:1")
    order = other.order()
    assert (order.state, order.reason) == (
        "BACKOFF", "worker:1 was lost, and all start again together",
    )  # fmt: skip
    other.start_attempt()
    assert other.order() is None


def test_tasks_that_are_lost_at_once_begin_one_round():
    first, second = make_rounds(1), make_rounds(2)
    first.lose_attempt()
    second.lose_attempt()
    first.note(second.started, "worker:2")
    second.note(first.started, "worker:1")
    for rounds in (first, second):
        rounds.start_attempt()
        assert (rounds.newest, rounds.order()) == (1, None)


def test_the_loss_of_an_attempt_of_an_older_round_begins_no_other():
    rounds = make_rounds(2)
    rounds.note(1, "worker:1")
    rounds.lose_attempt()  # it noticed the loss itself
    assert (rounds.newest, rounds.lost) == (1, "worker:1")


def test_tasks_that_do_not_meet_are_restarted_alone():
    rounds = make_rounds(1, master_port=None)
    rounds.lose_attempt()
    assert rounds.started == 0
    rounds.note(1, "worker:0")
    assert rounds.order() is None
