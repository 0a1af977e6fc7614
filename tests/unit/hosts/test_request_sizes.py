"""What a host is sent depends on its own tasks, and little on the number of hosts."""

from __future__ import annotations

import json
import zlib

import pytest

from tfdeploy import run as runs
from tfdeploy.agent.protocol.reports import Status
from tfdeploy.agent.protocol.runs import RunRecord, Start, Stop
from tfdeploy.hosts.agent_session import COMPRESSED_FROM, query
from tfdeploy.planning import launch, placing
from unit.builders import make_inventory


def make_run(count):
    """Return a run with one worker on each of `count` hosts, and its launches."""
    addresses = (f'[hosts.gpu-{n:04}]\naddress = "10.0.{n // 250}.{n % 250}"' for n in range(count))
    defaults = "[defaults]\nworkers = 1\nports = [2222, 2223]\n"
    inventory = make_inventory(defaults + "\n".join(addresses), training='role = "flags"')
    plan = placing.make_plan_from_addresses(inventory)
    run = runs.Run("20260501-101500-3f2a", "f" * 16, "a" * 16, inventory, plan, ())
    return run, launch.make(inventory, plan, run.names, "s3cret")


@pytest.mark.parametrize("count", [16, 48, 200])
def test_a_start_sends_a_host_less_than_a_few_compressed_clusters(count):
    run, launches = make_run(count)
    text = runs.to_record(run)
    record = RunRecord(1, text.run_json, text.hosts_toml)
    sent = len(query(Start([launches[-1]], record)).compressed)
    cluster = len(zlib.compress(json.dumps(run.plan.cluster).encode()))
    hosts_toml = len(zlib.compress(text.hosts_toml.encode()))
    assert sent < 1500 + 8 * cluster + hosts_toml


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
