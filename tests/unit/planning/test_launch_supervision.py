"""Launches: restarts, ends, heartbeat and replicas of each task."""

from __future__ import annotations

import pytest
from support.builders import make_inventory, make_plan

from tfdeploy.config.inventory import RestartSettings
from tfdeploy.errors import PlanError
from tfdeploy.planning import launch
from tfdeploy.planning.roles import RunNames
from tfdeploy.shared import records
from tfdeploy.shared.protocol.message import parse
from tfdeploy.shared.protocol.record import field_names, replace
from tfdeploy.shared.records import Launch, Policy

PS = "[hosts.p]\nps = 1\n[hosts.w]\nworkers = 2\n[hosts.e]\nevaluator = true"
SYNC = '[hosts.a]\nworkers = 1\n[hosts.b]\nworkers = 1\naddress = "10.0.0.2"'


def launches(hosts=PS, training="", top=""):
    inventory = make_inventory(hosts, training=training, top=top)
    return {
        x.task: x
        for x in launch.make(inventory, make_plan(hosts), RunNames("run-1", "f00d"), "s3cret")
    }


# Restarts


def test_restart_applies_to_every_task():
    orders = launches(top='[restart]\nattempts = 3\nexits = [7, "SIGKILL"]')
    assert {task: order.policy for task, order in orders.items()} == dict.fromkeys(
        orders,
        Policy(
            attempts=3, delay_s=1.0, exits=[7, "SIGKILL"], frozen_timeout_s=20.0,
            stall_timeout_s=None,
        ),
    )  # fmt: skip


def test_a_job_may_override_restart():
    orders = launches(top="[restart]\nattempts = 3\ndelay_s = 9\n[restart.worker]\nattempts = 4")
    assert (orders["ps:0"].policy.attempts, orders["worker:0"].policy.attempts) == (3, 4)
    assert orders["worker:0"].policy.delay_s == 9


def test_a_job_may_override_restart_with_the_default():
    orders = launches(top="[restart]\nattempts = 3\n[restart.worker]\nattempts = 10")
    assert orders["worker:0"].policy.attempts == 10


def test_stall_timeout_applies_to_a_ps_only_in_its_own_table():
    orders = launches(top="[restart]\nstall_timeout_s = 9")
    assert (orders["ps:0"].policy.stall_timeout_s, orders["worker:0"].policy.stall_timeout_s) == (
        None,
        9,
    )
    own = launches(top="[restart.ps]\nstall_timeout_s = 9")
    assert (own["ps:0"].policy.stall_timeout_s, own["worker:0"].policy.stall_timeout_s) == (
        9,
        None,
    )


ALONE = "[hosts.a]\nworkers = 1"


@pytest.mark.parametrize(
    ("top", "retries_exit_1"),
    [("", False), ("[restart]\nattempts = 3", False), ("[restart]\nexits = [1]", True),
     ("[restart.worker]\nexits = [1]", True)],
)  # fmt: skip
def test_a_task_without_peers_restarts_on_exit_1_only_if_configured(top, retries_exit_1):
    exits = launches(ALONE, top=top)["worker:0"].policy.exits
    assert (1 in exits) == retries_exit_1
    assert retries_exit_1 or {"signals", "UnavailableError", "AbortedError"} <= {*exits}
    assert 1 in launches(SYNC)["worker:0"].policy.exits


def test_every_key_of_restart_is_part_of_the_policy():
    assert {*field_names(Policy)} == {*RestartSettings.key_names()}


# Ends


def test_only_an_evaluator_lingers_after_the_chief():
    orders = launches(training="evaluator_grace_s = 77")
    assert orders["evaluator:0"].limits.linger_s == 77
    assert (
        orders["ps:0"].limits.linger_s == orders["worker:1"].limits.linger_s == launch.STRAGGLERS_S
    )


@pytest.mark.parametrize(
    ("hosts", "training", "linger_s"),
    [
        ("", "", 4.0),
        ("", 'ends_with = "all"', None),
        (SYNC, "", None),
        (SYNC, 'ends_with = "chief"', 4.0),
    ],
)
def test_a_run_without_a_ps_ends_with_all_of_its_workers(hosts, training, linger_s):
    orders = launches(*filter(None, [hosts]), training=training)
    assert orders["worker:1"].limits.linger_s == linger_s


def test_max_duration_applies_to_every_task():
    assert launches()["worker:0"].limits.max_duration_s is None
    assert launches(training="max_duration_s = 5")["worker:0"].limits.max_duration_s == 5


def test_save_on_stop_applies_to_workers_and_chief():
    orders = launches(training="save_on_stop = true")
    assert [
        task for task, order in orders.items() if "TFDEPLOY_SAVE_ON_STOP" in order.process.env
    ] == [
        "worker:0",
        "worker:1",
    ]
    assert "TFDEPLOY_SAVE_ON_STOP" not in launches()["worker:0"].process.env


def test_a_task_that_hangs_can_print_its_stacks():
    assert launches()["worker:0"].process.env["PYTHONFAULTHANDLER"] == "1"


# Heartbeat and replicas


def test_every_task_connects_to_the_heartbeat_of_the_chief():
    settings = {task: order.heartbeat for task, order in launches().items()}
    chief = settings["worker:0"]  # on its own host, it needs no network
    remote = replace(chief, address="w")
    assert settings == {
        "ps:0": remote.of("ps:0"), "worker:0": chief, "worker:1": chief.of("worker:1"),
        "evaluator:0": remote.of("evaluator:0"),
    }  # fmt: skip
    assert (chief.address, chief.port, chief.secret) == ("localhost", 2224, "s3cret")
    assert "s3cret" not in chief.launch_name


def test_with_ps_the_chief_needs_only_the_ps():
    assert launches()["ps:0"].heartbeat.needed == ["ps:0"]


def test_without_ps_the_chief_needs_every_other_worker():
    assert launches(SYNC)["worker:0"].heartbeat.needed == ["worker:1"]


def test_only_the_chiefs_launch_is_the_chief():
    assert [task for task, order in launches().items() if order.is_chief] == ["worker:0"]


def test_the_orphan_timeout_applies_to_every_task():
    assert launches(training="orphan_timeout_s = 12")["ps:0"].heartbeat.orphan_timeout_s == 12


def test_by_default_no_host_keeps_a_replica():
    assert launches(SYNC)["worker:0"].heartbeat.replicas == []


def test_an_evaluator_on_another_host_reads_a_replica():
    order = launches()["evaluator:0"]
    assert order.heartbeat.replicas == ["evaluator:0"]
    assert order.directory.links == {"checkpoints": "../../replica"}
    deeper = launches(training='checkpoint_dir = "out/./saved/"')["evaluator:0"]
    assert deeper.directory.links == {"out/saved": "../../../replica"}


def test_an_evaluator_on_another_host_gets_copies_of_the_files_beside_the_checkpoints():
    assert copied_outputs() == (1_024_000_000, "checkpoints")
    assert copied_outputs(training="replicas = 1") == (1_024_000_000, "")
    assert copied_outputs("[hosts.w]\nworkers = 1\nevaluator = true") == (0, "")
    assert copied_outputs(training='checkpoint_dir = "/shared/run"') == (0, "")


def copied_outputs(*hosts, **more):
    outputs = launches(*hosts, **more)["worker:0"].outputs
    return outputs.copied_bytes, outputs.copied_from


def test_an_evaluator_on_the_chiefs_host_reads_its_checkpoints():
    order = launches("[hosts.w]\nworkers = 1\nevaluator = true")["evaluator:0"]
    assert order.heartbeat.replicas == []
    assert order.directory.links == {"checkpoints": "../../worker-0/work/checkpoints"}


@pytest.mark.parametrize("where", ["/shared/run", "."])
def test_an_evaluator_has_no_link_for_a_path_that_can_not_be_linked(where):
    order = launches(training=f'checkpoint_dir = "{where}"')["evaluator:0"]
    assert order.directory.links == {}


def test_the_evaluators_own_supervisor_keeps_its_replica():
    hosts = "[hosts.w]\nworkers = 1\n[hosts.x]\nps = 1\nworkers = 1\nevaluator = true"
    assert launches(hosts)["worker:0"].heartbeat.replicas == ["evaluator:0"]


def test_the_evaluators_host_keeps_the_first_replica():
    hosts = "[hosts.w]\nworkers = 1\n[hosts.x]\nps = 1\n[hosts.e]\nevaluator = true"
    assert launches(hosts, "replicas = 1")["worker:0"].heartbeat.replicas == ["evaluator:0"]
    assert launches(hosts, "replicas = 2")["worker:0"].heartbeat.replicas == ["evaluator:0", "ps:0"]


def test_replicas_are_on_other_hosts_with_one_task_each():
    hosts = "[hosts.w]\nworkers = 1\n[hosts.x]\nps = 2\nworkers = 1\n[hosts.y]\nworkers = 1"
    assert launches(hosts, "replicas = 1")["worker:0"].heartbeat.replicas == ["ps:0"]
    assert launches(hosts, "replicas = 2")["worker:0"].heartbeat.replicas == ["ps:0", "worker:2"]


def test_more_replicas_than_other_hosts_are_refused():
    with pytest.raises(PlanError) as refused:
        launches(training="replicas = 3")
    assert str(refused.value) == (
        "training.replicas: found 3; expected at most 2, the number of hosts besides the chief's\n"
        "  lower it: a copy on the chief's own host would be lost with it"
    )


def test_a_launch_survives_serialization():
    order = launches(training="replicas = 1", top="[restart]\nattempts = 1")["worker:1"]
    assert parse(Launch, records.to_json(order)) == order
