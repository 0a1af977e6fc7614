"""Compute 10,000 hosts on paper, from what 200 and 1,000 hosts cost. Pure; needs no host.

PYTHONPATH=tests .venv/bin/python -m bench.paper
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdeploy.agent.supervision.heartbeat.client import INTERVAL_S, MAX_REQUESTS_PER_S
from tfdeploy.config.cluster import Task, tf_config
from tfdeploy.planning.checks import MAX_BYTES, NO_PROXY, SPARE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

RESULTS = Path(__file__).parent / "results"
SIZES = (200, 1000, 10_000)
# A stream of events has a thread in the command; in the daemon Paramiko's, the client's and the
# command's reader. A client has a socket at both ends, and each connection one to its host.
THREADS_A_STREAM = 1 + 3
FILES_A_STREAM = 2


# CPU seconds and peak MB of command and daemon, with stand-in agents, on 2026-11-23:
# results/standins.csv.
MEASURED = {
    "push_cold": {200: (2.83, 97), 1000: (8.13, 156)},
    "push_same": {200: (0.64, 83), 1000: (2.26, 171)},
    "status": {200: (0.65, 83), 1000: (2.12, 168)},
    "start": {200: (1.68, 109), 1000: (16.84, 267)},
}
CPU_S, PEAK_MB = 0, 1


def line(points: dict[int, float], hosts: int) -> float:
    """Return the cost of as many hosts on the line through two points."""
    (low, cost), (high, more) = sorted(points.items())
    return cost + (more - cost) / (high - low) * (hosts - low)


def parabola(points: dict[int, float], hosts: int) -> float:
    """Return the cost on the parabola through two points and 0: each host's part grows with the
    number of hosts, because it is sent the addresses of all."""
    return line({n: cost / n for n, cost in points.items()}, hosts) * hosts


def table(wire: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return rows: what it is, and its value for each of SIZES. `wire` are the results of
    bench.wire."""
    requests = {row["hosts"]: row for row in wire["bytes"]}
    sent = {n: n * requests[n]["start"] / 1e6 for n in SIZES[:2]}
    beats = {n: n * requests[n]["first_heartbeat"] / 1e6 for n in SIZES[:2]}
    lines = {
        "push, nothing changed, CPU s, with kept connections": _of("push_same", CPU_S, line),
        "push, the first one, CPU s (with handshakes)": _of("push_cold", CPU_S, line),
        "status, CPU s, with kept connections": _of("status", CPU_S, line),
        "start, CPU s": _of("start", CPU_S, parabola),
        "status, peak MB": _of("status", PEAK_MB, line),
        "start, peak MB": _of("start", PEAK_MB, line),
        "start, threads of command and daemon": lambda n: THREADS_A_STREAM * n,
        "start, open files of the daemon": lambda n: FILES_A_STREAM * n,
        "start, MB sent to all hosts": lambda n: parabola(sent, n),
        "first heartbeats, MB sent by the chief's host": lambda n: parabola(beats, n),
        "heartbeats, s between two of a task": lambda n: max(INTERVAL_S, n / MAX_REQUESTS_PER_S),
        "TF_CONFIG, bytes": tf_config_bytes,
    }
    return [(name, *(_format(value(n)) for n in SIZES)) for name, value in lines.items()]


def _of(
    step: str, figure: int, curve: Callable[[dict[int, float], int], float]
) -> Callable[[int], float]:
    points = {n: figures[figure] for n, figures in MEASURED[step].items()}
    return lambda hosts: curve(points, hosts)


def tf_config_bytes(hosts: int) -> int:
    """Return the length of the variable with one worker on each host."""
    addresses = [f"10.0.{100 + n // 100}.{100 + n % 100}:2222" for n in range(hosts)]
    return len(f"TF_CONFIG={tf_config({'worker': addresses}, Task('worker', 0))}")


def limits() -> list[tuple[str, str]]:
    """Return what ends, and at which number of hosts."""
    address, bytes_left = len("10.0.100.100"), MAX_BYTES - SPARE_BYTES
    in_tf_config = (bytes_left - tf_config_bytes(0)) // len('"10.0.100.100:2222", ')
    in_flag = (bytes_left - len("--worker_hosts=")) // (address + len(":2222,"))
    in_no_proxy = (bytes_left - len(f"{NO_PROXY}=")) // (address + 1)
    return [
        ("tasks in TF_CONFIG, with addresses such as 10.0.100.100:2222", f"{in_tf_config:,}"),
        ("tasks in a flag such as --worker_hosts", f"{in_flag:,}"),
        ("hosts in no_proxy", f"{in_no_proxy:,}"),
    ]


def load() -> dict[str, Any]:
    """Return the results of bench.wire."""
    found: dict[str, Any] = json.loads((RESULTS / "wire.json").read_text())
    return found


def _format(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


if __name__ == "__main__":
    for line in [*table(load()), *limits()]:
        print(*line, sep="\t")
    sys.exit(0)
