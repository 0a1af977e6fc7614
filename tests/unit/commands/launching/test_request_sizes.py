"""What a host is sent depends on its own tasks, and little on the number of hosts."""

from __future__ import annotations

import json
import zlib

import pytest
from support.builders import make_inventory

from tfdeploy import run as runs
from tfdeploy.hosts.agent_session import COMPRESSED_FROM, query
from tfdeploy.planning import launch, placing
from tfdeploy.shared.protocol.reports import Status
from tfdeploy.shared.protocol.runs import RunRecord, Start, Stop


def make_run(count, workers=1):
    """Return a run with some workers on each of `count` hosts, and its launches."""
    addresses = (f'[hosts.gpu-{n:04}]\naddress = "10.0.{n // 250}.{n % 250}"' for n in range(count))
    ports = [*range(2222, 2223 + workers)]
    defaults = f"[defaults]\nworkers = {workers}\nports = {ports}\n"
    inventory = make_inventory(defaults + "\n".join(addresses), training='role = "flags"')
    plan = placing.make_plan_from_addresses(inventory)
    run = runs.Run("20260501-101500-3f2a", "f" * 16, "a" * 16, inventory, plan, ())
    return run, launch.make(inventory, plan, run.names, "s3cret")


def start_bytes(run, launches):
    """Return the bytes of the request that starts the tasks of the last host."""
    text = runs.to_record(run)
    record = RunRecord(1, text.run_json, text.hosts_toml)
    tasks = {str(p.task) for p in run.plan.placements_on(run.plan.hosts[-1])}
    on_host = [each for each in launches if each.task in tasks]
    return len(query(Start(on_host, record)).compressed)


def compressed(text):
    return len(zlib.compress(text.encode()))


@pytest.mark.parametrize("count", [16, 48, 200])
def test_a_start_sends_a_host_less_than_a_few_compressed_clusters(count):
    run, launches = make_run(count)
    cluster, hosts_toml = json.dumps(run.plan.cluster), runs.to_record(run).hosts_toml
    sent = start_bytes(run, launches)
    assert sent < 1500 + 8 * compressed(cluster) + compressed(hosts_toml)


@pytest.mark.parametrize("count", [16, 48, 200])
def test_the_requests_of_status_and_stop_do_not_grow_with_the_run(count):
    run, _ = make_run(count)
    names = (run.inventory.project, run.id)
    assert len(query(Status(*names, 20)).compressed) < 200
    assert len(query(Stop(*names, ["worker:0"], "launch")).compressed) < 200


def test_a_short_request_is_sent_as_it_is():
    short = query(Status("p", "r", 0))
    assert len(short.data) < COMPRESSED_FROM
    assert short.compressed == short.data
