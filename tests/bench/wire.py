"""Measure what a host is sent, against the number of hosts, and what `plan` costs. Needs no host.

PYTHONPATH=tests .venv/bin/python -m bench.wire && tests/bench/render
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy import run as runs
from tfdeploy.agent.supervision.heartbeat import signing
from tfdeploy.agent.supervision.heartbeat.messages import Answer, without_defaults
from tfdeploy.config import inventory as inventories
from tfdeploy.hosts.agent_session import Query, query
from tfdeploy.planning import launch, placing
from tfdeploy.shared.protocol.record import replace
from tfdeploy.shared.protocol.reports import Status
from tfdeploy.shared.protocol.runs import RunRecord, Start, Stop

if TYPE_CHECKING:
    from tfdeploy.shared.protocol.reports import RunEvent
    from tfdeploy.shared.records import Launch

RESULTS = Path(__file__).parent / "results" / "wire.json"
SIZES = (16, 48, 200, 1000)
EIGHT_UP_TO = 200  # hosts: more tasks do not fit into TF_CONFIG, which Linux limits to 128 KiB
PLANNED = (48, 1000, 5000)
FIXED = """\
project = "bench"
[training]
command = "python train.py"
role = "flags"
[defaults]
"""
PLAN = """\
import resource, sys, time
from tfdeploy.cli import main
sys.argv = ["tfdeploy", "plan"]
try:
    main()
except SystemExit as end:
    assert not end.code
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(time.process_time(), peak, file=sys.stderr)
"""


def main() -> int:
    report = {"bytes": [sizes(count) for count in SIZES], "plan": [plan(n) for n in PLANNED]}
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")
    print(RESULTS.read_text())
    return 0


def sizes(count: int) -> dict[str, int | None]:
    """Return the bytes of each request to one host of a run with one worker on each host, those of
    a start with eight workers on each host, and the controller's CPU time for that request."""
    run = make_run(count, workers=1)
    plan, names = run.plan, (run.inventory.project, run.id)
    start, cpu_ms = start_request(run)
    eight = start_request(make_run(count, workers=8)) if count <= EIGHT_UP_TO else None
    known = Answer(lists="0" * 64, seen_from="192.0.2.7")
    unfinished, sources = [str(p.task) for p in plan.placements], [*plan.addresses]
    return {
        "hosts": count,
        "cluster": len(zlib.compress(json.dumps(plan.cluster).encode())),
        "start_plain": len(start.data),
        "start": len(start.compressed),
        "start_cpu_us": round(cpu_ms * 1000),
        "start_of_eight": len(eight[0].compressed) if eight else None,
        "status": len(query(Status(*names, 0)).compressed),
        "stop": len(query(Stop(*names, ["worker:1"], "0" * 16)).compressed),
        "heartbeat": heartbeat(known),
        "first_heartbeat": heartbeat(replace(known, unfinished=unfinished, sources=sources)),
    }


def make_run(count: int, workers: int) -> runs.Run:
    inventory = inventories.parse(hosts_toml(count, workers), Path("/project/hosts.toml"))
    plan = placing.make_plan_from_addresses(inventory)
    return runs.Run("20260501-101500-3f2a", "f" * 16, "a" * 16, inventory, plan, ())


def start_request(run: runs.Run) -> tuple[Query[RunEvent], float]:
    """Return the last host's start, encoded, and the CPU time of a host's request in ms."""

    def launches_on(host: str) -> tuple[Launch, ...]:
        on_host = run.plan.placements_on(host)
        return launch.make(run.inventory, run.plan, run.names, "0" * 64, placements=on_host)

    text = runs.to_record(run)
    record = RunRecord(1, text.run_json, text.hosts_toml)
    some = run.plan.hosts[-10:]
    before = time.process_time()
    encoded = [query(Start([*launches_on(host)], record)) for host in some]
    _ = [each.compressed for each in encoded]
    return encoded[-1], (time.process_time() - before) / len(some) * 1000


def heartbeat(answer: Answer) -> int:
    body = without_defaults(answer)
    return len(signing.sign("s3cret", signing.ANSWER, "worker:0", "0" * 32, body))


def plan(count: int) -> dict[str, float]:
    """Return what `tfdeploy plan` costs as a process."""
    with tempfile.TemporaryDirectory(prefix="tfb-") as folder:
        Path(folder, "hosts.toml").write_text(hosts_toml(count))
        Path(folder, "train.py").write_text("")
        done = subprocess.run(
            [sys.executable, "-c", PLAN], cwd=folder, capture_output=True, text=True, check=True
        )
    cpu_s, peak_kb = done.stderr.split()[-2:]
    return {"hosts": count, "cpu_s": round(float(cpu_s), 2), "peak_mb": int(peak_kb) // 1000}


def hosts_toml(count: int, workers: int = 1) -> str:
    hosts = (
        f'[hosts.gpu-{n:05}]\naddress = "10.{n >> 16}.{n >> 8 & 255}.{n & 255}"\n'
        for n in range(count)
    )
    ports = [*range(2222, 2223 + workers)]
    return FIXED + f"workers = {workers}\nports = {ports}\n" + "".join(hosts)


if __name__ == "__main__":
    sys.exit(main())
