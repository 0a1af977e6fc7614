"""What a run's tasks used, from samples of their hosts: cores, and TCP bytes of their own."""

from __future__ import annotations

import pytest

from tfdeploy.experiments.speed.load import Load, of_run, typical
from tfdeploy.shared.protocol.reports import Connection
from tfdeploy.shared.protocol.reports import Load as HostLoad


def sample(at, *connections, busy_s=0.0, **cpu_s):
    """Return a sample; `worker_0=4` are the CPU seconds of worker:0, a connection is (task, inode,
    received, sent)."""
    by_task = {task.replace("_", ":"): seconds for task, seconds in cpu_s.items()}
    return HostLoad(at, by_task, busy_s, [Connection(*each) for each in connections])


def test_cores_are_those_of_the_busiest_ps_and_worker_and_of_all_tasks():
    samples = {
        "a": [sample(100, ps_0=1, worker_0=4), sample(110, ps_0=6, worker_0=9)],
        "b": [sample(7, ps_1=0, worker_1=2), sample(17, ps_1=1, worker_1=22)],
    }
    used = of_run(samples)
    assert (used.ps_cores, used.worker_cores, used.cores) == (0.5, 2.0, pytest.approx(3.1))


def test_other_cores_are_those_that_the_run_did_not_use():
    samples = {
        "a": [sample(0, busy_s=50, worker_0=4), sample(10, busy_s=60, worker_0=9)],
        "b": [sample(0, busy_s=9, worker_1=0), sample(10, busy_s=12, worker_1=3)],
    }
    assert of_run(samples).other_cores == 0.5


def test_a_task_that_exited_counts_until_its_last_sample():
    samples = [sample(0, worker_0=0), sample(10, worker_0=5), sample(20)]
    assert of_run({"a": samples}).worker_cores == 0.5


def test_the_cpu_time_of_an_exited_task_is_not_counted_as_others():
    samples = [sample(0, busy_s=0), sample(5, busy_s=4, worker_0=4), sample(10, busy_s=5)]
    assert of_run({"a": samples}).other_cores == pytest.approx(0.1)


def test_bytes_between_two_tasks_count_once_and_a_ps_has_those_of_all_its_connections():
    worker, ps = ("worker:0", 1), ("ps:0", 2)
    samples = {
        "a": [sample(0, (*worker, 500, 50)), sample(10, (*worker, 1500, 250))],
        "b": [sample(3, (*ps, 50, 500)), sample(13, (*ps, 250, 1500), ("ps:0", 9, 0, 30))],
    }
    used = of_run(samples)
    assert used.network_bytes_per_s == 100 + 20
    assert used.ps_network_bytes_per_s == 100 + 3


def test_connections_that_were_opened_or_closed_meanwhile_count():
    samples = [
        sample(0, ("ps:0", 1, 100, 0)),
        sample(5, ("ps:0", 1, 150, 0), ("ps:0", 2, 70, 0)),
        sample(10, ("ps:0", 3, 30, 0)),
    ]
    assert of_run({"a": samples}).network_bytes_per_s == (50 + 70 + 30) / 10


def test_the_traffic_is_unknown_if_a_host_does_not_report_it():
    silent = [HostLoad(0, {}, 0.0), HostLoad(10, {"ps:0": 1.0}, 0.0)]
    reported = [sample(0), sample(10, ("worker:0", 1, 100, 0))]
    for samples in ({"a": silent, "b": reported}, {"a": [], "b": reported}):
        used = of_run(samples)
        assert (used.network_bytes_per_s, used.ps_network_bytes_per_s) == (None, None)
    assert of_run({"b": reported}).network_bytes_per_s == 10
    assert of_run({"b": reported}).ps_network_bytes_per_s is None


def test_two_samples_at_the_same_time_give_no_load():
    assert of_run({"a": [sample(3, worker_0=0), sample(3, busy_s=9, worker_0=1)]}) == Load()


def test_one_sample_gives_no_load():
    assert of_run({"a": [sample(0, worker_0=0)], "b": []}) == Load()


def test_the_typical_load_is_the_median_of_those_that_are_known():
    loads = [Load(ps_cores=1.0), Load(ps_cores=9.0, cores=3.0), Load(ps_cores=2.0)]
    assert typical(loads) == Load(ps_cores=2.0, cores=3.0)
