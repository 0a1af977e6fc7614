"""When the chief's supervisor notifies of the run's end: once, soon, and only of an end."""

from __future__ import annotations

import os
import time

import pytest
from support.builders import make_heartbeat_settings, make_launch

from tfdeploy.agent.reports import notify
from tfdeploy.agent.supervision import membership, watch
from tfdeploy.agent.supervision.heartbeat.messages import End, Report
from tfdeploy.shared.protocol.record import replace
from tfdeploy.shared.records import QUEUED, READY, STOPPED, Notification, Pace, TaskState

STATE = TaskState("FAILED", 0.0, exit=1, reason="exit 1")


@pytest.fixture
def sent(monkeypatch):
    """Return the list of what is sent: the states of the tasks, and when."""
    found = []

    def start_sending(launch, task_dir, states, started):
        found.append((states, time.monotonic()))

    monkeypatch.setattr(notify, "start_sending", start_sending)
    monkeypatch.setattr(membership, "TICK_S", 0.01)
    monkeypatch.setattr(membership, "NOTIFY_AFTER_S", 0.1)
    return found


@pytest.fixture
def join(tmp_path):
    """Return a function that makes the membership of a chief, whose others never report."""

    def make(on_end=("mail",)):
        settings = make_heartbeat_settings(secret=os.urandom(8).hex(), orphan_timeout_s=0.3)
        launch = make_launch(
            heartbeat=settings, linger_s=0.0, notify=Notification(on_end=[*on_end])
        )
        return membership.join(launch, str(tmp_path), lambda: STATE, list)

    return make


def leave(chief, order):
    """Leave and close as a supervisor does; return when it had left."""
    chief.leave(order)
    left_at = time.monotonic()
    chief.close()
    return left_at


def test_tasks_that_do_not_report_their_end_delay_it_only_for_a_while(sent, join):
    left_at = leave(join(), None)
    ((states, sent_at),) = sent
    assert sent_at < left_at
    assert {task: state.state for task, state in states.items()} == {
        "ps:0": "", "worker:0": "FAILED", "worker:1": "",
    }  # fmt: skip


@pytest.mark.parametrize(("order", "count"), [(watch.STOP_RUN, 1), (watch.STOP_SILENTLY, 0)])
def test_a_stop_is_an_end_unless_the_run_goes_on(sent, join, order, count):
    leave(join(), order)
    assert len(sent) == count


def test_without_a_target_nothing_is_sent(sent, join):
    leave(join(on_end=()), None)
    assert sent == []


def test_an_error_does_not_keep_the_supervisor_from_ending(sent, join, monkeypatch, capsys):
    def fail(*arguments):
        raise OSError("no more processes")

    monkeypatch.setattr(notify, "start_sending", fail)
    leave(join(), None)
    assert "no more processes" in capsys.readouterr().err


def test_a_new_launch_forgets_what_an_older_one_could_not_send(sent, join, tmp_path):
    (tmp_path / "notice.json").write_text("{}")
    join().close()
    assert not (tmp_path / "notice.json").exists()


def test_a_chief_that_has_ended_stays_while_others_are_heard(join):
    chief, now, long_ago = join(), time.monotonic(), time.monotonic() - 9e3
    for heard_at, is_heard in ((now + 9e3, True), (long_ago, False)):
        for task, last in chief._server.reports.items():
            chief._server.reports[task] = replace(last, at=heard_at)
        assert chief._is_in_contact(long_ago) == is_heard
    chief.close()


def test_a_ps_that_waits_for_a_lost_worker_does_not_keep_the_chief(join):
    chief, now, long_ago = join(), time.monotonic(), time.monotonic() - 9e3
    reports = chief._server.reports
    reports["ps:0"] = replace(reports["ps:0"], at=now + 9e3)
    reports["worker:1"] = replace(reports["worker:1"], at=long_ago)
    assert not chief._is_in_contact(long_ago)
    reports["worker:1"] = replace(reports["worker:1"], state="SUCCEEDED")
    assert chief._is_in_contact(long_ago)
    chief.close()


def test_a_task_does_not_report_its_end_to_a_chief_that_has_left(join, monkeypatch):
    """The chief has left as soon as it knew the end, and its answer was lost."""
    monkeypatch.setattr(membership, "LAST_REPORT_S", 3600.0)
    chief, state = join(), TaskState(READY, 0.0)
    settings = replace(chief._launch.heartbeat, port=chief._server.port)
    other = membership.join(make_launch(index=1, heartbeat=settings), "", lambda: state, list)
    chief._server.ended = End("FAILED", "exit 1")
    assert other._client.send()
    chief.close()
    state = TaskState(STOPPED, 0.0)
    other.leave(None)
    assert other._client.acknowledged.state == READY


USUAL = Pace(
    seconds=300.0, steps_per_s=4.0, cpus=8, other_cpus=0.0, disk_wait_cpus=0.0, swapped_bytes_s=0.0,
    resent=0.0, hot=0.0, stopped=0.0,
)  # fmt: skip


@pytest.fixture
def paced(tmp_path, monkeypatch):
    """Return the chief's membership, that of worker:1 on another host, and what is sent."""
    sent = []
    monkeypatch.setattr(notify, "start_sending_slow", lambda *words: sent.append(words[2:]))
    hosts = {"worker:0": "a", "worker:1": "b", "worker:2": "c"}
    settings = make_heartbeat_settings(secret=os.urandom(8).hex(), tasks=[*hosts])
    launch = make_launch(heartbeat=settings, notify=Notification(on_slow=["mail"], hosts=hosts))
    chief = membership.join(launch, str(tmp_path), lambda: STATE, list)
    ready = TaskState(READY, 0.0)
    of_port = replace(settings, port=chief._server.port)
    others = [
        membership.join(make_launch(index=n, heartbeat=of_port), "", lambda: ready, list)
        for n in (1, 2)
    ]
    yield chief, others, sent
    chief.close()


def report(chief, others, *rates):
    """Have the other workers report these rates."""
    for other, rate in zip(others, rates, strict=True):
        other.report_pace(replace(USUAL, steps_per_s=rate))
        assert other._client.send()


def test_a_slow_worker_is_sent_once_for_each_episode(paced, monkeypatch):
    chief, others, sent = paced
    report(chief, others, 4.0, 1.0)
    for _ in range(3):
        chief.report_pace(USUAL)
    [(host, sentence)] = sent
    assert (host, sentence[:58]) == (
        "c",
        "worker:2 makes 1 steps/s, 25% of the median of 3 workers (",
    )
    report(chief, others, 1.0, 4.0)
    chief.report_pace(USUAL)
    assert [host for host, _ in sent] == ["c", "b"]
    monkeypatch.setattr(membership, "EPISODE_S", 0.0)
    report(chief, others, 4.0, 1.0)
    chief.report_pace(USUAL)
    assert [host for host, _ in sent] == ["c", "b", "c"]


@pytest.mark.parametrize(("silent_s", "reason"), [(5.0, "its GPUs were idle"), (300.0, "")])
def test_a_host_that_is_away_keeps_idle_gpus_from_ending_the_run(tmp_path, silent_s, reason):
    launch = make_launch(heartbeat=make_heartbeat_settings(), idle_gpu_stop_s=600.0)
    chief = membership.join(launch, str(tmp_path), lambda: replace(STATE, state=READY), list)
    at = time.monotonic()
    for task, sent_at, idle_s in (("ps:0", at, None), ("worker:1", at - silent_s, 900.0)):
        chief._server.reports[task] = Report(at=sent_at, state=READY, idle_s=idle_s)
    order = chief.order()
    chief.close()
    assert bool(order) == bool(reason)
    assert order is None or reason in order.reason


def test_a_queued_run_waits_only_a_day_for_any_of_its_tasks(tmp_path):
    """A chief that trains can do without worker:1; in the queue it waits for its GPUs, too."""
    settings = make_heartbeat_settings(secret=os.urandom(8).hex())
    queued, launch = TaskState(QUEUED, 0.0), make_launch(heartbeat=settings)
    chief = membership.join(launch, str(tmp_path), lambda: queued, list)
    reports, now = chief._server.reports, time.monotonic()
    for task, last in reports.items():
        reports[task] = replace(last, at=now, state=QUEUED)
    for hours, state in ((23, None), (25, "FAILED")):
        reports["worker:1"] = replace(reports["worker:1"], at=now - hours * 3600)
        order = chief.order()
        assert (order and order.state) == state
    chief.close()
