"""How fast a task trains, from the counters that its supervisor keeps."""

from __future__ import annotations

import json

import pytest
from support.builders import make_launch

from tfdeploy.agent import paths
from tfdeploy.agent.reports import pace, usage
from tfdeploy.shared.pace import Counters, between, newest, overall
from tfdeploy.shared.protocol.message import parse_lines
from tfdeploy.shared.protocol.record import replace, to_json

START = Counters(
    at=1000.0,
    step=10,
    cpus=8,
    busy_s=500.0,
    own_s=100.0,
    disk_wait_s=5.0,
    swapped_bytes=0,
    segments_sent=1000,
    segments_resent=10,
    hot_s=0.0,
    stopped_s=0.0,
)


def later(seconds, line=START, **changes):
    return replace(line, at=line.at + seconds, **changes)


def test_a_pace_is_the_difference_of_counters():
    end = later(
        100.0, step=210, busy_s=1100.0, own_s=300.0, disk_wait_s=55.0, swapped_bytes=1 << 20,
        segments_sent=3000, segments_resent=110, hot_s=25.0, stopped_s=50.0,
    )  # fmt: skip
    found = between(START, end)
    assert (found.seconds, found.steps_per_s, found.cpus) == (100.0, 2.0, 8)
    assert (found.other_cpus, found.disk_wait_cpus, found.resent) == (4.0, 0.5, 0.05)
    assert (found.hot, found.stopped, found.swapped_bytes_s) == (0.25, 0.5, (1 << 20) / 100)


def test_a_task_that_reports_no_steps_has_no_rate():
    assert between(replace(START, step=None), later(30.0)).steps_per_s is None
    assert between(START, later(30.0)).resent == 0.0  # nothing was sent


def test_the_pace_is_that_of_the_last_five_minutes():
    lines = [later(30.0 * n, step=10 + (n if n < 20 else 20 + 30 * (n - 20))) for n in range(40)]
    found = newest(lines)
    assert 270 <= found.seconds <= 345
    assert found.steps_per_s == pytest.approx(1.0)


@pytest.mark.parametrize("change", [{"step": 3}, {"own_s": 1.0}])
def test_what_was_before_a_restart_does_not_count(change):
    again = later(60.0, **change)
    found = newest([START, later(30.0, step=400), again, later(30.0, again)])
    assert found.seconds == 30.0


def test_the_pace_of_a_whole_run_has_all_attempts_and_no_time_before_its_first_step():
    starting = replace(START, at=100.0, step=None)
    again = later(400.0, step=0, own_s=1.0)
    lines = [starting, START, later(100.0, step=210), again, later(100.0, again, step=100)]
    found = overall(lines)
    assert (found.seconds, found.steps_per_s) == (200.0, 1.5)
    assert overall([starting, later(50.0, starting)]).steps_per_s is None
    assert overall([START]) is None


def test_one_line_is_no_pace():
    assert newest([]) is None
    assert newest([START]) is None


def test_lines_that_are_none_are_skipped():
    text = json.dumps(to_json(START)).encode()
    cut, wrong = text[10:], text.replace(b"1000.0", b'"x"')
    assert [*parse_lines(Counters, b"\n".join([cut, text, wrong, b"[]", b"NaN"]))] == [START]


def test_the_counters_of_this_machine_grow(root):
    launch = make_launch()
    processes = usage.ProcessTable(launch.project, launch.run)
    before = pace._count(launch, paths.task(launch.project, launch.run, launch.task), processes, 1)
    after = pace._count(launch, paths.task(launch.project, launch.run, launch.task), processes, 1)
    for name, value in to_json(before).items():
        assert name == "step" or value <= to_json(after)[name]
    assert before.busy_s > 0
    assert before.segments_sent > 0
    assert before.step is None


CGROUP_V2 = b"0::/user.slice/run\n"
CGROUP_V1 = b"4:memory:/x\n2:cpu,cpuacct:/run\n0::/\n"


@pytest.mark.parametrize(
    ("groups", "file", "counter", "second"),
    [
        (CGROUP_V2, "v2/user.slice/run/cpu.stat", "throttled_usec", 1e6),
        (CGROUP_V1, "v1/run/cpu.stat", "throttled_time", 1e9),
    ],
)
def test_the_time_that_a_quota_takes_is_read_of_both_versions(
    tmp_path, groups, file, counter, second
):
    stat = tmp_path / file
    stat.parent.mkdir(parents=True)
    stat.write_text(f"nr_periods 5\n{counter} {int(2.5 * second)}\n")
    quotas = (("", f"{tmp_path}/v2", "throttled_usec", 1e6),
              ("cpu", f"{tmp_path}/v1", "throttled_time", 1e9))  # fmt: skip
    assert pace.stopped_s(groups, quotas) == 2.5


def test_a_task_without_a_quota_is_never_stopped(tmp_path):
    assert pace.stopped_s(CGROUP_V2, (("", str(tmp_path), "throttled_usec", 1e6),)) == 0.0


@pytest.mark.parametrize(
    ("log", "step"),
    [
        ("Epoch 3/10\n20/100 - loss: 0.5\n", 220),
        ("Epoch 3/10\n", None),
        ("step 70, loss 0.1\n", 70),
        ("20/100 - loss: 0.5\n", 20),
        ("nothing\n", None),
    ],
)
def test_steps_are_read_from_the_log_as_the_controller_does(root, log, step):
    launch = make_launch()
    path = paths.log(launch.project, launch.run, launch.task)
    root.joinpath(path).parent.mkdir(parents=True)
    root.joinpath(path).write_text(log)
    assert pace._step(launch, paths.task(launch.project, launch.run, launch.task)) == step
