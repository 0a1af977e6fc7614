"""Slow workers are named with figures, and nothing is said without one."""

from __future__ import annotations

from support.builders import make_plan

from tfdeploy.commands.watching.history import slow_tasks
from tfdeploy.shared.records import READY, STOPPED, Pace, TaskReport

PLAN = make_plan("".join(f"[hosts.{name}]\nworkers = 1\n" for name in "abcd"))
PS_PLAN = make_plan("[hosts.p]\nps = 1\n[hosts.a]\nworkers = 1\n[hosts.b]\nworkers = 1")
USUAL = {
    **{"seconds": 300.0, "steps_per_s": 4.8, "cpus": 8, "other_cpus": 0.1, "hot": 0.0},
    **{"disk_wait_cpus": 0.0, "swapped_bytes_s": 0.0, "resent": 0.0, "stopped": 0.0},
}


def said(changes, plan=PLAN, state=READY):
    """Return the sentences if the paces of these tasks have these changes."""
    reports = [
        (p, TaskReport(
            str(p.task), state, 600.0, 1, None, 0, "",
            pace=Pace(**USUAL | changes.get(str(p.task), {})),
        ))
        for p in plan.placements
    ]  # fmt: skip
    return [str(each) for each in slow_tasks(reports)]


def test_workers_that_are_alike_need_no_words():
    assert said({}) == []
    assert said({"worker:1": {"steps_per_s": 3.5, "other_cpus": 0.2}}) == []
    assert slow_tasks([(p, None) for p in PLAN.placements]) == []


def test_a_slow_worker_is_named_with_what_is_different_on_its_host():
    assert said({"worker:1": {"steps_per_s": 1.2, "other_cpus": 6.1, "resent": 0.034}}) == [
        "b: worker:1 makes 1.2 steps/s, 25% of the median of 4 workers (4.8) in the last 5m 00s; "
        "other programs use 6.1 CPUs (0.1 for the others); "
        "3.4% of its TCP segments are sent again (0.0% for the others)"
    ]


def test_without_a_different_figure_only_the_rate_is_named():
    [sentence] = said({"worker:1": {"steps_per_s": 1.2}})
    assert sentence.endswith("in the last 5m 00s")


def test_a_quota_is_a_figure():
    [sentence] = said({"worker:3": {"steps_per_s": 0.0, "stopped": 0.62}})
    assert "0% of the median" in sentence
    assert sentence.endswith("a CPU quota stops the task 62% of the time (0% for the others)")


def test_a_host_that_differs_is_named_although_all_workers_wait_for_it():
    assert said({"worker:1": {"swapped_bytes_s": 5e6, "disk_wait_cpus": 2.0, "hot": 0.5}}) == [
        "b: heat throttles a CPU 50% of the time (0% for the others); it swaps 5.0 MB/s "
        "(0.0 MB/s for the others); 2.0 CPUs wait for a disk (0.0 for the others)"
    ]


def test_what_all_hosts_have_is_no_difference():
    busy = {f"worker:{n}": {"other_cpus": 6.0} for n in range(4)}
    assert said(busy | {"worker:1": {"steps_per_s": 1.0, "other_cpus": 7.0}}) == [
        "b: worker:1 makes 1 steps/s, 21% of the median of 4 workers (4.8) in the last 5m 00s"
    ]


def test_a_bad_gpu_is_a_figure_and_named_alone_from_the_first_minute_on():
    bad = {"gpu_problems": ["GPU 0 (H100): the kernel has logged Xid 94"]}
    assert said({"worker:2": {**bad, "seconds": 60.0}}) == [f"c: {bad['gpu_problems'][0]}"]
    [sentence] = said({"worker:2": {**bad, "steps_per_s": 1.0}})
    assert sentence.endswith("in the last 5m 00s; GPU 0 (H100): the kernel has logged Xid 94")


def test_a_short_time_says_nothing_and_neither_does_a_task_that_has_ended():
    slow = {"steps_per_s": 1.0, "other_cpus": 6.0}
    assert said({f"worker:{n}": {**slow, "seconds": 120.0} for n in range(3)}) == []
    assert said({"worker:1": slow}, state=STOPPED) == []


def test_a_ps_has_no_steps_but_its_host_may_differ():
    changes = {"ps:0": {"steps_per_s": 0.0}}
    assert said(changes, PS_PLAN) == []
    [sentence] = said({"ps:0": {"steps_per_s": None, "other_cpus": 3.0}}, PS_PLAN)
    assert sentence.startswith("p: other programs use 3.0 CPUs")


def test_on_one_host_tasks_differ_only_from_each_other():
    alone = make_plan("[hosts.a]\nworkers = 2")
    assert said({f"worker:{n}": {"other_cpus": 6.0} for n in range(2)}, alone) == []
    [sentence] = said({"worker:1": {"steps_per_s": 1.0, "stopped": 0.8}}, alone)
    assert sentence.endswith("; a CPU quota stops the task 80% of the time (0% for the others)")
