"""What launches have in common leaves them and comes back, character by character."""

from __future__ import annotations

import json
import zlib

import pytest
from support.builders import make_inventory, make_launch

from tfdeploy import run as runs
from tfdeploy.agent import verbs
from tfdeploy.commands.following.launching import StartRequests
from tfdeploy.planning import launch, placing, roles
from tfdeploy.shared.protocol.message import parse
from tfdeploy.shared.protocol.record import replace
from tfdeploy.shared.protocol.runs import RunRecord, Start
from tfdeploy.shared.protocol.shared_parts import SharedParts, leave_out, put_back

HOSTS = """
[defaults]
ports = [2222, 2223, 2224]
[hosts.one]
address = "10.0.0.1"
ps = 1
workers = 1
[hosts.two]
address = "10.0.0.2"
workers = 2
[hosts.three]
address = "10.0.0.3"
workers = 1
evaluator = true
"""
FILES = """
role_args = "--hosts {worker_hosts} --ps {ps_hosts:;} --list {worker_hosts:;}{data:digits}"
role_env = {CLUSTER = "{cluster}", HERE = "{data:digits}/{ps_hosts}"}
role_files = {"cluster.json" = "{cluster}\\n{worker_hosts}"}
replicas = 1
"""
DATA = '[data.digits]\npath = "/data"\n'


def plan_run(training):
    inventory = make_inventory(HOSTS + DATA, training=training)
    plan = placing.make_plan_from_addresses(inventory)
    run = runs.Run("20260501-101500-3f2a", "f" * 16, "a" * 16, inventory, plan, ())
    run = replace(run, data={"digits": "data-digits-1"})
    return run, launch.make(inventory, plan, run.names, "s3cret", {"KEY": "value"})


def requests(run, launches):
    texts = roles.shared_texts(run.inventory.training, run.plan)
    return StartRequests(RunRecord(1, "{}", HOSTS), texts, launches[0])


@pytest.mark.parametrize("role", ["flags", "dashed", "positional", "environment", "tf_config"])
def test_every_launch_arrives_as_it_was_made(role):
    run, launches = plan_run(f'role = "{role}"\n{FILES}')
    query = requests(run, launches).query(launches)
    verb, body = json.loads(query.data)
    request = parse(Start, body, strict=True)
    assert verb == Start.VERB
    assert request.record == RunRecord(1, "{}", HOSTS)
    assert tuple(put_back(each, request.shared) for each in request.launches) == launches


def test_the_compressed_request_is_the_same_request():
    run, launches = plan_run(FILES)
    query = requests(run, launches).query(launches)
    first, packed = query.compressed.split(b"\n", 1)
    assert json.loads(first) == [verbs.COMPRESSED, {"size": len(packed)}]
    assert zlib.decompress(packed) == query.data


def test_no_launch_repeats_the_cluster():
    run, launches = plan_run('role = "environment"')
    sent = json.loads(requests(run, launches).query(launches).data)[1]["launches"]
    for text in roles.shared_texts(run.inventory.training, run.plan):
        assert any(text in value for each in launches for value in each.env.values())
        assert not any(text in value for each in sent for value in each["env"].values())
    assert {len(each["no_proxy"]) + len(each["heartbeat"]["tasks"]) for each in sent} == {0}


def test_a_text_that_is_a_part_of_another_one_comes_back():
    shared = SharedParts(["a:1,b:1", "a:1"], [], [], [], [])
    own = make_launch(argv=["--all=a:1,b:1", "--ps=a:1", "\0/data"], env={"A": "a:1,a:1"})
    own = replace(own, heartbeat=replace(own.heartbeat, tasks=[], needed=[], replicas=[]))
    assert put_back(leave_out(own, shared), shared) == own
