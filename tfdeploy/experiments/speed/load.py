"""What the tasks of a measured run used: cores and TCP bytes, from samples of their hosts. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tfdeploy.shared.protocol.reports import Connection
    from tfdeploy.shared.protocol.reports import Load as HostLoad

PS = "ps:"


@dataclass(frozen=True)
class Load:
    """What the run's own processes used; null if the hosts did not report it."""

    ps_cores: float | None = None
    """The CPU cores that the busiest ps used."""
    worker_cores: float | None = None
    """The CPU cores that the busiest worker used."""
    cores: float | None = None
    """The CPU cores that all tasks used."""
    network_bytes_per_s: float | None = None
    """What all tasks received by TCP: bytes between two tasks count once."""
    ps_network_bytes_per_s: float | None = None
    """What the busiest ps received or sent by TCP, whichever is more."""
    other_cores: float | None = None
    """The CPU cores that a host used for anything else, the largest number of all hosts."""


def of_run(samples: Mapping[str, Sequence[HostLoad]]) -> Load:
    """Return the load from the samples of each host, in their order. A task that has exited, and a
    connection that was closed, count until their last sample."""
    spans = [host for host in samples.values() if host and host[-1].at > host[0].at]
    cores = dict(_task_cores(spans))
    traffic = _task_traffic(spans) if len(spans) == len(samples) else None
    return Load(
        max((cores[task] for task in cores if task.startswith(PS)), default=None),
        max((cores[task] for task in cores if not task.startswith(PS)), default=None),
        sum(cores.values()) if cores else None,
        None if traffic is None else sum(task.received for task in traffic.values()),
        None if traffic is None else _busiest_ps(traffic),
        max(map(_other_cores, spans), default=None),
    )


def typical(loads: Iterable[Load]) -> Load:
    """Return the median of each value over the runs that have it."""
    columns: dict[str, list[float]] = {}
    for each in loads:
        for name, value in asdict(each).items():
            columns.setdefault(name, []).extend([] if value is None else [value])
    return Load(**{name: median(values) for name, values in columns.items() if values})


# Cores


def _task_cores(hosts: Iterable[Sequence[HostLoad]]) -> Iterator[tuple[str, float]]:
    for samples in hosts:
        for task in {task for sample in samples for task in sample.cpu_s}:
            of_task = [sample for sample in samples if task in sample.cpu_s]
            first, last = of_task[0], of_task[-1]
            if last.at > first.at:
                yield task, (last.cpu_s[task] - first.cpu_s[task]) / (last.at - first.at)


def _other_cores(samples: Sequence[HostLoad]) -> float:
    """Return the cores used by processes that are not the run's. The time of a task that has exited
    meanwhile counts as the run's."""
    first, last = samples[0], samples[-1]
    latest = {task: cpu_s for sample in samples for task, cpu_s in sample.cpu_s.items()}
    run_s = sum(cpu_s - first.cpu_s.get(task, 0.0) for task, cpu_s in latest.items())
    return max(0.0, last.busy_s - first.busy_s - run_s) / (last.at - first.at)


# TCP


class _Traffic(NamedTuple):
    """Bytes per second."""

    received: float
    sent: float


def _task_traffic(hosts: Iterable[Sequence[HostLoad]]) -> dict[str, _Traffic] | None:
    """Return the traffic of each task that has connections; None if a host reports none of it."""
    tasks: dict[str, _Traffic] = {}
    for samples in hosts:
        counts = [sample.connections for sample in samples]
        if None in counts:
            return None
        seconds = samples[-1].at - samples[0].at
        for task, received, sent in _moved([count or [] for count in counts]):
            before = tasks.get(task, _Traffic(0.0, 0.0))
            rates = (before.received + received / seconds, before.sent + sent / seconds)
            tasks[task] = _Traffic(*rates)
    return tasks


def _moved(samples: Sequence[Iterable[Connection]]) -> Iterator[tuple[str, int, int]]:
    """Yield the task of each connection, and the bytes that it received and sent meanwhile. One
    that was opened after the first sample had moved nothing before it."""
    first = {(each.task, each.inode): each for each in samples[0]}
    last = {(each.task, each.inode): each for sample in samples for each in sample}
    for key, now in last.items():
        before = first.get(key)
        received, sent = (before.received, before.sent) if before else (0, 0)
        yield now.task, max(0, now.received - received), max(0, now.sent - sent)


def _busiest_ps(traffic: Mapping[str, _Traffic]) -> float | None:
    rates = (max(rate) for task, rate in traffic.items() if task.startswith(PS))
    return max(rates, default=None)
