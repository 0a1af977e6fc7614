"""A large cluster sends heartbeats less often, so its tasks must wait longer for them."""

from __future__ import annotations

import pytest
from support.builders import make_inventory, make_plan

from tfdeploy.agent.supervision.heartbeat import client
from tfdeploy.errors import PlanError
from tfdeploy.planning import checks


def check(tasks, timeout_s):
    hosts = "\n".join(f"[hosts.n{n}]\nworkers = 1" for n in range(tasks))
    inventory = make_inventory(hosts, training=f"orphan_timeout_s = {timeout_s}")
    checks.check_orphan_timeout(inventory.training, make_plan(hosts))


def test_tasks_of_a_large_cluster_have_time_for_three_heartbeats():
    check(200, 12)
    message = (
        r"^training.orphan_timeout_s: found 12; expected at least 13, the time for 3 heartbeats of "
        "each of 201 tasks, which together send 50 per second"
    )
    with pytest.raises(PlanError, match=message):
        check(201, 12)


def test_the_rate_of_heartbeats_is_that_of_the_agent():
    assert checks.HEARTBEATS_PER_S == client.MAX_REQUESTS_PER_S
