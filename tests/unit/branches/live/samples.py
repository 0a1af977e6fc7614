"""Watched runs and samples of hosts, as agents send them."""

from __future__ import annotations

from tfdeploy.branches.live.watched_run import WatchedRun
from tfdeploy.shared.protocol.reports import GpuUse, HostSample, HostUse, LogLines, TaskUse
from tfdeploy.shared.records import LogProgress
from unit.output.samples import make_report, make_run

GB = 10**9
TWO_HOSTS = "[hosts.p]\nps = 1\n[hosts.w]\nworkers = 2\ngpus = 2"


def host_use(at=0.0, busy_s=0.0, gpus=(), **changes):
    fields = {
        "at": at, "busy_s": busy_s, "cpus": 4, "used_bytes": 3 * GB, "total_bytes": 16 * GB,
        "received": 0, "sent": 0, "gpus": list(gpus),
    }  # fmt: skip
    return HostUse(**{**fields, **changes})


def gpu(index, busy=50.0):
    return GpuUse(index, busy, 10 * GB, 80 * GB)


def task_use(task="worker:0", cpu_s=0.0, used_bytes=GB, **changes):
    return TaskUse(make_report(task=task, **changes), cpu_s, used_bytes)


def sample(*tasks, host=None, logs=(), **more):
    lines = [LogLines(task, list(found), "1:2:3") for task, found in dict(logs).items()]
    return HostSample(host=host or host_use(), tasks=list(tasks), logs=lines, **more)


def keras(epoch, batch, loss="0.5", **more):
    return LogProgress(epoch=epoch, epochs=10, batch=batch, batches=100, loss=loss, **more)


def watched_run(hosts=TWO_HOSTS):
    return WatchedRun(make_run(hosts))
