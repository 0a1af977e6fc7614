"""Restart decisions: every message once, and properties that hold for any history."""

from __future__ import annotations

import errno
import signal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import make_policy

from tfdeploy.agent.supervision import restart
from tfdeploy.agent.supervision.restart import (
    MAX_DELAY_S,
    WINDOW_S,
    Attempt,
    Decision,
    Exit,
    decide,
)
from tfdeploy.shared.outcome import describe_exit
from tfdeploy.shared.protocol.record import replace

READY = Attempt(0.0, ready=True)
NEVER_READY = Attempt(0.0, ready=False)


def decision(ended, history=(READY,), now=100.0, jitter=0.0, **changes):
    return decide(make_policy(**changes), history, ended, now, jitter)


def after(restarts):
    """Return the history of a task with this number of restarts, all in the last minute."""
    return [READY, *(Attempt(60.0 + n, ready=False) for n in range(restarts))]


# Messages


@pytest.mark.parametrize(
    ("ended", "state", "reason"),
    [
        (Exit(0), "SUCCEEDED", "exit 0"),
        (Exit(0, final=True), "SUCCEEDED", "exit 0"),
        (Exit(-15, stopped=True, reason="on request"), "STOPPED", "on request; stopped by SIGTERM"),
        (Exit(0, stopped=True, reason="on request"), "STOPPED", "on request; exit 0"),
        (Exit(1, stopped=True, reason="the run has ended"), "STOPPED", "the run has ended; exit 1"),
        (Exit(1, final=True), "FAILED", "exit 1"),
        (
            Exit(1, reason="exit 1: the disk is full", final=True),
            "FAILED",
            "exit 1: the disk is full",
        ),
        (Exit(-6, reason="ps:0 failed: exit 1", final=True), "FAILED", "ps:0 failed: exit 1"),
        (Exit(2), "FAILED", "exit 2, which is not retried"),
        (Exit(1), "BACKOFF", "exit 1; restart 1 of 10"),
        (Exit(-9), "BACKOFF", "killed by SIGKILL; restart 1 of 10"),
        (Exit(137), "BACKOFF", "exit 137; restart 1 of 10"),
        (Exit(-6, reason="FROZEN: no answer"), "BACKOFF", "FROZEN: no answer; restart 1 of 10"),
        (Exit(0, reason="stalled"), "BACKOFF", "stalled; restart 1 of 10"),
    ],
)
def test_the_end_of_an_attempt_gets_a_state_and_a_reason(ended, state, reason):
    result = decision(ended)
    assert (result.state, result.reason) == (state, reason)


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        (
            Exit(1, ended_peers=["worker:1"], error="AbortedError", exception="AbortedError: gone"),
            "exit 1; not restarted alone, because worker:1 has ended: AbortedError",
        ),
        (
            Exit(1, ended_peers=["worker:1"], exception="ValueError: no such column"),
            "exit 1; not restarted alone, because worker:1 has ended: ValueError: no such column",
        ),
        (
            Exit(-9, ended_peers=["worker:1", "worker:2", "worker:3"]),
            "killed by SIGKILL; not restarted alone, because worker:1 and 2 more have ended",
        ),
        (
            Exit(-6, reason="FROZEN: no answer", ended_peers=["worker:1"]),
            "FROZEN: no answer; not restarted alone, because worker:1 has ended",
        ),
        (Exit(1, ended_peers=["worker:1"], final=True), "exit 1"),
    ],
)
def test_a_task_is_not_restarted_without_those_that_it_has_to_meet(ended, reason):
    assert decision(ended) == Decision("FAILED", 0.0, reason)


def test_a_lost_connection_to_a_task_that_has_failed_is_a_cause_also_if_others_have_ended():
    ended = Exit(1, ended_peers=["worker:1"], error="UnavailableError", failed_task="worker:1")
    assert decision(ended).cause == "worker:1"
    assert decision(replace(ended, error="")).cause == ""


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("", "", True),
        ("", "--------------------\nFor simplicity, JAX has removed its internal frames\n", True),
        ("", "step 100\n" * 60, False),
        ("Exception ignored in: <function f>\n", "", False),
    ],
)
def test_a_program_that_has_caught_an_exception_goes_on_to_print(before, after, expected):
    raised = "Traceback (most recent call last):\n  File 'a.py', line 3\nValueError: a\n"
    assert restart.ends_with_traceback(f"{before}{raised}{after}".encode()) == expected


def test_a_success_is_a_success_whoever_has_ended():
    assert decision(Exit(0, ended_peers=["worker:1"])).state == "SUCCEEDED"


def test_a_task_that_was_never_ready_is_not_restarted():
    assert decision(Exit(1), [NEVER_READY]) == Decision(
        "FAILED", 0.0, "exit 1, before it was ever READY"
    )
    timed_out = Exit(-6, reason="not READY within 180 s")
    assert decision(timed_out, [NEVER_READY]) == Decision("FAILED", 0.0, "not READY within 180 s")


def test_a_task_that_was_ready_once_is_restarted_before_it_is_ready_again():
    assert decision(Exit(1), [READY, NEVER_READY]).state == "BACKOFF"


def test_used_up_restarts_are_reported_with_their_window():
    assert decision(Exit(-11), after(2), attempts=2) == Decision(
        "FAILED", 0.0, "killed by SIGSEGV; all 2 restarts within an hour are used up"
    )


def test_without_attempts_the_reason_is_the_exit_code():
    assert decision(Exit(1), attempts=0) == Decision("FAILED", 0.0, "exit 1")


def test_restarts_before_the_window_do_not_count():
    history = [READY, Attempt(5.0, ready=False), Attempt(15.0, ready=False)]
    at = 5.0 + WINDOW_S  # when the first restart leaves the window
    assert decision(Exit(1), history, now=at - 1, attempts=2).state == "FAILED"
    assert decision(Exit(1), history, now=at, attempts=2).reason == "exit 1; restart 2 of 2"


@pytest.mark.parametrize(
    ("code", "description"),
    [(0, "exit 0"), (127, "exit 127"), (-9, "killed by SIGKILL"), (-99, "killed by signal 99")],
)
def test_an_exit_code_is_described(code, description):
    assert restart.describe_exit(code) == description


# Exits that are retried


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
def test_only_listed_exits_are_retried(exits, retried, not_retried):
    assert {decision(Exit(code), exits=exits).state for code in retried} <= {"BACKOFF"}
    assert {decision(Exit(code), exits=exits).state for code in not_retried} == {"FAILED"}


@pytest.mark.parametrize("by_name", [True, False])
def test_a_shells_exit_code_for_a_signal_counts_as_that_signal(by_name):
    for number in signal.Signals:
        exits = [number.name if by_name else "signals"]
        assert decision(Exit(128 + number), exits=exits).state == "BACKOFF", number
        assert decision(Exit(-number), exits=exits).state == "BACKOFF", number


def test_exit_1_is_retried_if_exits_has_the_name_of_its_error():
    exits = ["signals", "UnavailableError"]
    assert decision(Exit(1, error="UnavailableError"), exits=exits).state == "BACKOFF"
    assert decision(Exit(1), exits=exits).reason == "exit 1, which is not retried"


# The same failure again

BOOM = b"""epoch 1
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    work(<object at 0x7f00>)
ValueError: boom
I0000 shutting down
"""
FIRST = Attempt(0.0, True, restart.last_traceback(BOOM), progress=4)
SECOND = Attempt(60.0, True, FIRST.failure, progress=4)
TWICE = "twice with the same traceback and no progress in between"


def test_the_same_traceback_twice_without_progress_is_not_retried():
    again = Attempt(60.0, True, FIRST.failure, progress=4)
    assert decision(Exit(1), [FIRST, again]) == Decision("FAILED", 0.0, f"exit 1, {TWICE}")


def test_the_first_failure_is_named_if_restarts_fail_in_another_way():
    """The first one left a folder, for example, and each restart fails because it is there."""
    exists = Attempt(60.0, True, "  File\nFileExistsError: /tmp/worker_1", progress=4)
    reason = decision(Exit(1, exception="FileExistsError"), [FIRST, exists, exists]).reason
    assert reason == f"exit 1, {TWICE}: FileExistsError; the first time: ValueError: boom"


@pytest.mark.parametrize(
    "again",
    [
        Attempt(60.0, True, FIRST.failure, progress=5),
        Attempt(60.0, True, FIRST.failure, progress=None),
        Attempt(60.0, True, "Traceback\nValueError: another", progress=4),
        Attempt(60.0, True, "", progress=4),
    ],
)
def test_another_traceback_or_progress_of_the_run_is_retried(again):
    assert decision(Exit(1), [FIRST, again]).state == "BACKOFF"


def test_a_lost_peer_in_between_does_not_hide_a_repeated_failure():
    lost_peer, again = Attempt(60.0, True), Attempt(70.0, True, FIRST.failure, progress=4)
    assert decision(Exit(1), [FIRST, lost_peer, again]).state == "FAILED"


CANCELLED = BOOM.replace(b"ValueError: boom", b"CancelledError: step was cancelled")


def lose_connection(progress, failed_task="worker:1", code=1):
    """Return the attempt of a chief that lost its connection while `failed_task` had failed."""
    (attempt,) = restart.record_failure(
        [READY], code, CANCELLED, lambda: progress, failed_task=failed_task
    )
    return attempt


def test_a_lost_connection_twice_without_progress_is_not_retried_if_another_task_has_failed():
    ended = Exit(1, failed_task="worker:1", why_failed="exit 3, which is not retried")
    assert decision(ended, [lose_connection(4)]).state == "BACKOFF"  # a ps may have restarted
    assert decision(ended, [lose_connection(4), lose_connection(4)]) == Decision(
        "FAILED",
        0.0,
        "exit 1, twice after a lost connection and with no progress in between; "
        "worker:1 failed: exit 3, which is not retried",
        "worker:1",
    )


@pytest.mark.parametrize(
    "again",
    [
        lose_connection(5),
        lose_connection(None),
        lose_connection(4, failed_task=""),
        lose_connection(4, code=137),
    ],
)
def test_a_lost_connection_is_retried_after_progress_or_while_no_task_has_failed(again):
    history = [READY, lose_connection(4), again]
    assert decision(Exit(1, failed_task="worker:1"), history).state == "BACKOFF"


def test_a_frozen_task_is_retried_whatever_it_had_printed():
    again = Attempt(60.0, True, FIRST.failure, progress=4)
    frozen = Exit(-6, reason="FROZEN: no answer")
    assert decision(frozen, [FIRST, again]).state == "BACKOFF"


def test_a_traceback_ends_with_its_exception_and_has_no_addresses():
    assert restart.last_traceback(BOOM).splitlines()[-1] == "ValueError: boom"
    assert "0x7f00" not in restart.last_traceback(BOOM)
    assert restart.last_traceback(b"no exception") == ""


@pytest.mark.parametrize("error", restart.PEER_ERRORS)
def test_a_lost_peer_is_not_recorded_as_a_failure_of_the_script(error):
    output = BOOM.replace(b"ValueError", b"tensorflow.errors." + error.encode())
    assert restart.peer_error(output) == error
    assert restart.record_failure([FIRST], 1, output, lambda: 4) == [FIRST]


def test_a_success_after_a_traceback_is_noted_but_not_what_python_ignores():
    printed = (
        b'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: a trial\nok\n'
    )
    note = ", with a traceback in its last lines: ValueError: a trial"
    assert restart.note_of_traceback(printed) == note
    assert restart.note_of_traceback(b"done\n") == ""
    ignored = b"Exception ignored in: <function A.__del__ at 0x7f>\n" + printed
    assert restart.note_of_traceback(ignored) == ""
    decision = decide(make_policy(), [Attempt(0.0, True)], Exit(0, detail=note), 1.0, 0.0)
    assert (decision.state, decision.reason) == ("SUCCEEDED", "exit 0" + note)


def test_the_last_traceback_is_recorded_as_the_failure():
    assert restart.record_failure([Attempt(0.0, True)], 1, BOOM, lambda: 4) == [FIRST]


GRAPH_ERROR = b"""Traceback (most recent call last):
  File "train.py", line 3, in <module>
    model.fit(data)
errors_impl.InvalidArgumentError: Graph execution error:

%b
\t [[{{node embedding/GatherV2}}]] [Op:__inference_multi_step_on_iterator_563]
"""


@pytest.mark.parametrize(
    "detail",
    [
        b"Detected at node embedding/GatherV2 defined at (most recent call last):\n"
        b'  File "train.py", line 3, in <module>\n\nindices[0,0] = 99 is not in [0, 5)',
        b"Detected at node Gather defined at (most recent call last):\n"
        b"<stack traces unavailable>\nindices[0,0] = 99 is not in [0, 5)",
        b"Detected at node 'Gather' defined at (most recent call last):\n"
        b"    File \"train.py\", line 3, in <module>\nNode: 'Gather'\n"
        b"2 root error(s) found.\n  (0) INVALID_ARGUMENT:  indices[0,0] = 99 is not in [0, 5)\n"
        b"\t [[{{node Gather}}]]\n  (1) CANCELLED:  Function was cancelled before it was started",
    ],
)
def test_the_reason_has_the_cause_of_a_graph_execution_error(detail):
    output = GRAPH_ERROR % detail
    assert restart.exception(output) == (
        "errors_impl.InvalidArgumentError: indices[0,0] = 99 is not in [0, 5)"
    )


CHAIN = b"""Traceback (most recent call last):
  File "train.py", line 3, in <module>
    import nothing
ModuleNotFoundError: No module named 'nothing'

%b

Traceback (most recent call last):
  File "train.py", line 5, in <module>
    raise RuntimeError("no data")
RuntimeError: no data
"""


@pytest.mark.parametrize("sentence", restart.CHAINED)
def test_the_reason_has_the_innermost_exception(sentence):
    assert restart.exception(CHAIN % sentence) == (
        "RuntimeError: no data, from ModuleNotFoundError: No module named 'nothing'"
    )


@pytest.mark.parametrize(
    ("exception", "shown"),
    [
        ("tensorflow.python.framework.errors_impl.AbortedError: gone", "AbortedError: gone"),
        ("ValueError: " + "column " * 40, "ValueError:" + " column" * 18 + " ..."),
        ("ValueError:" + "x" * 400, "ValueError:" + "x" * 129 + " ..."),
    ],
)
def test_an_exception_in_a_reason_is_short(exception, shown):
    output = f'Traceback (most recent call last):\n  File "train.py", line 3\n{exception}\n'
    assert restart.exception(output.encode()) == shown


def test_an_exception_that_was_printed_before_is_not_the_innermost_one():
    assert restart.exception(CHAIN % b"another trial") == "RuntimeError: no data"
    assert restart.exception(b"no traceback") == ""


PYTORCH = b"""step 1
[rank0]: Traceback (most recent call last):
[rank0]:   File "train.py", line 12, in <module>
[rank0]:     load()
[rank0]: KeyError: 'x'

[rank0]: During handling of the above exception, another exception occurred:

[rank0]: Traceback (most recent call last):
[rank0]:   File "train.py", line 14, in <module>
[rank0]:     a = torch.empty(1 << 40, device="cuda")
[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1024.00 GiB.
[rank0]:[W1127 07:58:50.300123596 ProcessGroupNCCL.cpp:1575] Warning: destroy_process_group() was
"""


def test_a_traceback_of_pytorch_has_a_rank_before_each_line():
    last = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1024.00 GiB."
    assert restart.exception(PYTORCH) == f"{last}, from KeyError: 'x'"
    assert restart.last_traceback(PYTORCH).splitlines()[-1] == last
    assert restart.note_of_traceback(PYTORCH).endswith(last)


def test_a_launcher_that_ends_with_its_child_is_not_the_reason():
    launcher = b"Traceback (most recent call last):\n  File 'run.py'\nelastic.ChildFailedError: \n"
    assert restart.exception(BOOM + launcher) == "ValueError: boom"


@pytest.mark.parametrize(
    ("history", "changes", "reason"),
    [
        ([NEVER_READY], {}, "exit 1, before it was ever READY: ValueError: boom"),
        ([READY], {}, "exit 1: ValueError: boom; restart 1 of 10"),
        ([READY], {"exits": [3]}, "exit 1, which is not retried: ValueError: boom"),
        ([FIRST, SECOND], {}, f"exit 1, {TWICE}: ValueError: boom"),
    ],
)
def test_the_reason_has_the_exception(history, changes, reason):
    assert decision(Exit(1, exception="ValueError: boom"), history, **changes).reason == reason


def exit_without_traceback(code=1, progress=4):
    history = [Attempt(0.0, True)]
    return restart.record_failure(history, code, b"training is complete", lambda: progress)


def test_the_same_exit_code_twice_without_traceback_and_progress_is_not_retried():
    history = [*exit_without_traceback(), *exit_without_traceback()]
    assert decision(Exit(1), history) == Decision(
        "FAILED", 0.0, "exit 1, twice with no progress in between"
    )


@pytest.mark.parametrize("code", [-signal.SIGABRT, -signal.SIGSEGV, 128 + signal.SIGABRT])
def test_the_same_crash_twice_without_progress_is_not_retried_whatever_was_printed(code):
    """JAX prints DEADLINE_EXCEEDED and aborts five minutes after a task did not arrive at the end,
    and would do so again after each restart."""
    ended = restart.record_failure([READY], code, b"DEADLINE_EXCEEDED: Barrier", lambda: 7)
    assert decision(Exit(code), ended).state == "BACKOFF"
    again = restart.record_failure([*ended, READY], code, b"Fatal Python error", lambda: 7)
    assert decision(Exit(code), again) == Decision(
        "FAILED", 0.0, f"{describe_exit(code)}, twice with no progress in between"
    )
    later = restart.record_failure([*ended, READY], code, b"Fatal Python error", lambda: 8)
    assert decision(Exit(code), later).state == "BACKOFF"


@pytest.mark.parametrize(
    "before",
    [
        exit_without_traceback(code=2),
        exit_without_traceback(progress=3),
        exit_without_traceback(progress=None),
        [FIRST],
    ],
)
def test_another_exit_code_or_progress_of_the_run_is_retried(before):
    assert decision(Exit(1), [*before, *exit_without_traceback()]).state == "BACKOFF"


@pytest.mark.parametrize(
    ("code", "output"),
    [
        (1, b"rpc failed: UNAVAILABLE: connection refused"),
        (1, b"AbortedError: step 3"),
        (143, b"SIGTERM ended a child of a shell"),
    ],
)
def test_progress_is_not_determined_if_a_restart_can_help(code, output):
    history = [Attempt(0.0, True)]
    assert restart.record_failure(history, code, output, lambda: 1 / 0) == history


# Delays


def delays(count, jitter=0.0, **changes):
    """Return the delays of a task that ends as soon as it has started."""
    histories = map(after, range(count))
    return [
        decision(Exit(1), each, each[-1].started_at, jitter, attempts=count, **changes).delay_s
        for each in histories
    ]


@pytest.mark.parametrize(
    ("ran_s", "restarts", "delay_s"),
    [(59.9, 0, 2.0), (60.0, 0, 0.0), (3000.0, 0, 0.0), (60.0, 1, 4.0)],
)
def test_the_first_restart_of_a_task_that_ran_for_the_longest_delay_is_at_once(
    ran_s, restarts, delay_s
):
    history = [READY] * (restarts + 1)
    result = decision(Exit(1), history, ran_s, delay_s=2.0)
    assert (result.state, result.delay_s) == ("BACKOFF", delay_s)


def test_each_delay_is_twice_as_long_up_to_the_limit():
    assert delays(6, delay_s=4.5) == [4.5, 9.0, 18.0, 36.0, 60.0, 60.0]


def test_jitter_shortens_a_delay_by_up_to_half():
    assert delays(3, jitter=1.0, delay_s=4.0) == [2.0, 4.0, 8.0]
    assert delays(3, jitter=0.5, delay_s=4.0) == [3.0, 6.0, 12.0]


def test_a_delay_beyond_the_limit_is_the_limit():
    assert delays(2, delay_s=99.0) == [60.0, 60.0]


def test_very_many_restarts_do_not_overflow_the_delay():
    assert decision(Exit(1), after(5000), attempts=9999).delay_s == 60.0


def test_ready_is_recorded_for_the_last_attempt_only():
    history = [Attempt(1.0, ready=False), Attempt(2.0, ready=False)]
    assert restart.record_ready(history) == [Attempt(1.0, ready=False), Attempt(2.0, ready=True)]
    assert history[1] == Attempt(2.0, ready=False)


# Properties: random attempts one after the other, each decision leading to the next


EXITS = st.builds(
    Exit,
    st.integers(-64, 255),
    stopped=st.sampled_from([False] * 9 + [True]),
    reason=st.sampled_from(["", "", "FROZEN"]),
    final=st.sampled_from([False] * 9 + [True]),
)
ENDS = st.lists(
    st.tuples(
        st.floats(0.0, 90.0) | st.floats(0.0, 2000.0), st.sampled_from([True, True, False]), EXITS
    ),
    min_size=1,
    max_size=25,
)
POLICIES = st.builds(
    make_policy,
    attempts=st.integers(0, 5),
    delay_s=st.floats(0.0, 10.0),
    exits=st.lists(st.sampled_from([1, 2, "signals", "SIGKILL"]), max_size=3),
)
CHANCE = st.floats(0.0, 1.0)


def replay(policy, ends, jitter):
    """Yield (history, end, time of the end, decision) for each attempt up to the last one."""
    now, history = 0.0, []
    for lasted_s, ready, ended in ends:
        history = [*history, Attempt(now, ready)]
        now += lasted_s
        result = decide(policy, history, ended, now, jitter)
        yield history, ended, now, result
        if result.state != "BACKOFF":
            return
        now += result.delay_s


@given(POLICIES, ENDS, CHANCE)
def test_no_window_has_more_restarts_than_allowed(policy, ends, jitter):
    history = list(replay(policy, ends, jitter))[-1][0]
    restarts = [attempt.started_at for attempt in history[1:]]
    for end in restarts:
        within = [start for start in restarts if end - WINDOW_S < start <= end]
        assert len(within) <= policy.attempts


def ran_long(history, now):
    """Return whether the last attempt lasted for at least the longest delay."""
    return now - history[-1].started_at >= MAX_DELAY_S


@given(POLICIES, ENDS, CHANCE)
def test_every_delay_is_between_half_the_first_and_the_limit(policy, ends, jitter):
    for history, _, now, result in replay(policy, ends, jitter):
        if result.state != "BACKOFF":
            assert result.delay_s == 0
        elif result.delay_s or not ran_long(history, now):
            assert policy.delay_s / 2 <= result.delay_s <= MAX_DELAY_S


@given(POLICIES, ENDS)
def test_without_jitter_delays_double_while_no_restart_leaves_the_window(policy, ends):
    for first, second in pairwise(replay(policy, ends, 0.0)):
        delay_s, following = first[3].delay_s, second[3]
        if not delay_s and ran_long(first[0], first[2]):
            delay_s = policy.delay_s  # left out
        oldest = second[0][1].started_at
        if following.state == "BACKOFF" and oldest > second[2] - WINDOW_S:
            assert following.delay_s == pytest.approx(min(2 * delay_s, MAX_DELAY_S))


@given(POLICIES, ENDS, CHANCE)
def test_some_ends_are_never_followed_by_a_restart(policy, ends, jitter):
    for history, ended, _, result in replay(policy, ends, jitter):
        never_ready = not any(attempt.ready for attempt in history)
        succeeded = ended.code == 0 and not ended.reason
        if ended.stopped or ended.final or succeeded or never_ready or not policy.attempts:
            assert result.state in ("STOPPED", "SUCCEEDED", "FAILED")
        assert (result.state == "STOPPED") == ended.stopped
        assert (result.state == "SUCCEEDED") == (succeeded and not ended.stopped)


@given(POLICIES, ENDS, CHANCE)
def test_the_same_history_gives_the_same_decision(policy, ends, jitter):
    assert list(replay(policy, ends, jitter)) == list(replay(policy, ends, jitter))


@given(POLICIES, ENDS, CHANCE, st.integers(0, 10**6))
def test_only_differences_of_the_clock_count(policy, ends, jitter, shift):
    for history, ended, now, _ in replay(policy, ends, jitter):
        rounded = [Attempt(round(attempt.started_at), attempt.ready) for attempt in history]
        moved = [Attempt(attempt.started_at + shift, attempt.ready) for attempt in rounded]
        expected = decide(policy, rounded, ended, round(now), jitter)
        assert decide(policy, moved, ended, round(now) + shift, jitter) == expected


def test_what_is_known_about_a_death_by_sigkill_is_part_of_the_reason():
    ended = Exit(-9, detail=": the kernel killed 1 process for lack of memory")
    reason = "killed by SIGKILL: the kernel killed 1 process for lack of memory; restart 1 of 10"
    assert decision(ended, [READY]).reason == reason


def test_a_process_that_could_not_be_started_for_a_limit_is_retried():
    ended = restart.not_started("python", BlockingIOError(errno.EAGAIN, "again"))
    assert decision(ended, [READY]).state == "BACKOFF"
    assert ended.reason.startswith("can't start another process or thread: Resource temporarily")
    missing = restart.not_started("python", FileNotFoundError(2, "No such file or directory"))
    assert decision(missing, [READY]) == Decision(
        "FAILED", 0.0, "cannot run python: No such file or directory"
    )
