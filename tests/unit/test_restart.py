"""Is a task that ended begun again? Every sentence once, and whatever history is replayed."""

from __future__ import annotations

import signal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdeploy.agent import restart
from tfdeploy.agent.restart import Attempt, Decision, Exit, decide
from unit.made import policy

READY = Attempt(0.0, ready=True)
NEVER_READY = Attempt(0.0, ready=False)


def decided(ended, history=(READY,), now=100.0, chance=0.0, **changes):
    return decide(policy(**changes), history, ended, now, chance)


def after(restarts):
    """The history of a task that was begun again so often, all in the last minute."""
    return [READY, *(Attempt(60.0 + n, ready=False) for n in range(restarts))]


# Every sentence


@pytest.mark.parametrize(
    ("ended", "state", "reason"),
    [
        (Exit(0), "SUCCEEDED", "exit 0"),
        (Exit(0, final=True), "SUCCEEDED", "exit 0"),
        (Exit(-15, stopped=True, why="as asked"), "STOPPED", "as asked, killed by SIGTERM"),
        (Exit(0, stopped=True, why="as asked"), "STOPPED", "as asked, exit 0"),
        (Exit(1, stopped=True, why="the run has ended"), "STOPPED", "the run has ended, exit 1"),
        (Exit(1, final=True), "FAILED", "exit 1"),
        (Exit(1, why="exit 1: the disk is full", final=True), "FAILED", "exit 1: the disk is full"),
        (Exit(-6, why="ps:0 failed: exit 1", final=True), "FAILED", "ps:0 failed: exit 1"),
        (Exit(2), "FAILED", "exit 2, which isn't retried"),
        (Exit(1), "BACKOFF", "exit 1; restart 1 of 10"),
        (Exit(-9), "BACKOFF", "killed by SIGKILL; restart 1 of 10"),
        (Exit(137), "BACKOFF", "exit 137; restart 1 of 10"),
        (Exit(-6, why="FROZEN: no answer"), "BACKOFF", "FROZEN: no answer; restart 1 of 10"),
        (Exit(0, why="stalled"), "BACKOFF", "stalled; restart 1 of 10"),
    ],
)
def test_how_an_attempt_ended_is_judged(ended, state, reason):
    made = decided(ended)
    assert (made.state, made.reason) == (state, reason)


def test_a_task_that_was_never_ready_is_not_begun_again():
    assert decided(Exit(1), [NEVER_READY]) == Decision(
        "FAILED", 0.0, "exit 1, before it was ever READY"
    )
    late = Exit(-6, why="not READY within 180 s")
    assert decided(late, [NEVER_READY]) == Decision("FAILED", 0.0, "not READY within 180 s")


def test_a_task_that_was_ready_once_is_begun_again_before_it_is_so_anew():
    assert decided(Exit(1), [READY, NEVER_READY]).state == "BACKOFF"


def test_restarts_that_are_used_up_are_told_with_their_window():
    assert decided(Exit(-11), after(2), attempts=2, window_s=90.0) == Decision(
        "FAILED", 0.0, "killed by SIGSEGV; all 2 restarts within 90 s are used up"
    )


def test_without_attempts_the_end_speaks_for_itself():
    assert decided(Exit(1), attempts=0) == Decision("FAILED", 0.0, "exit 1")


def test_restarts_before_the_window_count_no_more():
    history = [READY, Attempt(5.0, ready=False), Attempt(15.0, ready=False)]
    assert decided(Exit(1), history, now=20.0, attempts=2, window_s=16.0).state == "FAILED"
    assert decided(Exit(1), history, now=21.0, attempts=2, window_s=16.0).reason == (
        "exit 1; restart 2 of 2"
    )


@pytest.mark.parametrize(
    ("code", "name"),
    [(0, "exit 0"), (127, "exit 127"), (-9, "killed by SIGKILL"), (-99, "killed by signal 99")],
)
def test_an_exit_is_named(code, name):
    assert restart.named(code) == name


# What is retried


@pytest.mark.parametrize(
    ("exits", "retried", "not_retried"),
    [
        ([], [], [1, -9, 137]),
        ([1], [1], [2, -9, 137]),
        ([3, 4], [3, 4], [1, -3]),
        (["signals"], [-9, -15, 137, 143, -40, 168], [1, 128, 127, 193, 255]),
        (["SIGKILL"], [-9, 137], [-15, 143, 1, 9]),
        ([137], [137], [-9, 143]),
        ([1, "SIGTERM"], [1, -15, 143], [-9, 15]),
    ],
)
def test_what_is_retried(exits, retried, not_retried):
    assert {decided(Exit(code), exits=exits).state for code in retried} <= {"BACKOFF"}
    assert {decided(Exit(code), exits=exits).state for code in not_retried} == {"FAILED"}


@pytest.mark.parametrize("number", [*signal.Signals])
@pytest.mark.parametrize("named_so", [True, False])
def test_a_shells_word_for_a_signal_counts_as_that_signal(number, named_so):
    exits = [number.name if named_so else "signals"]
    assert decided(Exit(128 + number), exits=exits).state == "BACKOFF"
    assert decided(Exit(-number), exits=exits).state == "BACKOFF"


# How long it waits


def delays(count, chance=0.0, **changes):
    return [
        decided(Exit(1), after(nth), chance=chance, attempts=count, **changes).delay_s
        for nth in range(count)
    ]


def test_each_restart_waits_twice_as_long_up_to_the_limit():
    assert delays(6, delay_s=1.5, max_delay_s=20.0) == [1.5, 3.0, 6.0, 12.0, 20.0, 20.0]


def test_jitter_takes_away_up_to_a_half():
    assert delays(3, chance=1.0, delay_s=4.0) == [2.0, 4.0, 8.0]
    assert delays(3, chance=0.5, delay_s=4.0) == [3.0, 6.0, 12.0]


def test_a_delay_beyond_the_limit_is_the_limit():
    assert delays(2, delay_s=99.0, max_delay_s=5.0) == [5.0, 5.0]


def test_very_many_restarts_wait_for_the_limit():
    assert decided(Exit(1), after(5000), attempts=9999, max_delay_s=7.0).delay_s == 7.0


def test_ready_is_noted_of_the_last_attempt_alone():
    history = [Attempt(1.0, ready=False), Attempt(2.0, ready=False)]
    assert restart.readied(history) == [Attempt(1.0, ready=False), Attempt(2.0, ready=True)]
    assert history[1] == Attempt(2.0, ready=False)


# Whatever happens: lives that end one after the other, each decision leading to the next


EXITS = st.builds(
    Exit,
    st.integers(-64, 255),
    stopped=st.sampled_from([False] * 9 + [True]),
    why=st.sampled_from(["", "", "FROZEN"]),
    final=st.sampled_from([False] * 9 + [True]),
)
LIVES = st.lists(
    st.tuples(st.floats(0.0, 40.0), st.sampled_from([True, True, False]), EXITS),
    min_size=1,
    max_size=25,
)
POLICIES = st.builds(
    policy,
    attempts=st.integers(0, 5),
    window_s=st.floats(1.0, 100.0),
    delay_s=st.floats(0.0, 10.0),
    max_delay_s=st.floats(0.0, 30.0),
    exits=st.lists(st.sampled_from([1, 2, "signals", "SIGKILL"]), max_size=3),
)
CHANCE = st.floats(0.0, 1.0)


def replayed(rules, lives, chance):
    """(attempts up to it, how the last one ended, when, what was decided) for each life that was
    lived: after the last of these the task was not begun again."""
    now, history = 0.0, []
    for lasted_s, ready, ended in lives:
        history = [*history, Attempt(now, ready)]
        now += lasted_s
        made = decide(rules, history, ended, now, chance)
        yield history, ended, now, made
        if made.state != "BACKOFF":
            return
        now += made.delay_s


@given(POLICIES, LIVES, CHANCE)
def test_no_window_ever_holds_more_restarts_than_are_allowed(rules, lives, chance):
    history = list(replayed(rules, lives, chance))[-1][0]
    restarts = [attempt.began for attempt in history[1:]]
    for end in restarts:
        within = [began for began in restarts if end - rules.window_s < began <= end]
        assert len(within) <= rules.attempts


@given(POLICIES, LIVES, CHANCE)
def test_every_delay_lies_between_half_the_first_and_the_limit(rules, lives, chance):
    for _, _, _, made in replayed(rules, lives, chance):
        if made.state == "BACKOFF":
            assert min(rules.delay_s, rules.max_delay_s) / 2 <= made.delay_s <= rules.max_delay_s
        else:
            assert made.delay_s == 0


@given(POLICIES, LIVES)
def test_without_jitter_delays_double_while_no_restart_leaves_the_window(rules, lives):
    for first, second in pairwise(replayed(rules, lives, 0.0)):
        made, following = first[3].delay_s, second[3]
        oldest = second[0][1].began
        if following.state == "BACKOFF" and oldest > second[2] - rules.window_s:
            assert following.delay_s == pytest.approx(min(2 * made, rules.max_delay_s))


@given(POLICIES, LIVES, CHANCE)
def test_some_ends_are_never_followed_by_a_restart(rules, lives, chance):
    for history, ended, _, made in replayed(rules, lives, chance):
        never_ready = not any(attempt.ready for attempt in history)
        succeeded = ended.code == 0 and not ended.why
        if ended.stopped or ended.final or succeeded or never_ready or not rules.attempts:
            assert made.state in ("STOPPED", "SUCCEEDED", "FAILED")
        assert (made.state == "STOPPED") == ended.stopped
        assert (made.state == "SUCCEEDED") == (succeeded and not ended.stopped)


@given(POLICIES, LIVES, CHANCE)
def test_the_same_history_gives_the_same_decision(rules, lives, chance):
    assert list(replayed(rules, lives, chance)) == list(replayed(rules, lives, chance))


@given(POLICIES, LIVES, CHANCE, st.integers(0, 10**6))
def test_only_differences_of_the_clock_count(rules, lives, chance, shift):
    for history, ended, now, _ in replayed(rules, lives, chance):
        stood = [Attempt(round(attempt.began), attempt.ready) for attempt in history]
        moved = [Attempt(attempt.began + shift, attempt.ready) for attempt in stood]
        one = decide(rules, stood, ended, round(now), chance)
        assert decide(rules, moved, ended, round(now) + shift, chance) == one
