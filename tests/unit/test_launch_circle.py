"""What a Launch says beyond its program: when it begins again, when it ends, who hears of whom."""

from __future__ import annotations

import dataclasses

import pytest

from tfdeploy import launch
from tfdeploy.agent import records
from tfdeploy.agent.records import Launch, Policy
from tfdeploy.errors import PlanError
from tfdeploy.inventory import RestartSettings
from unit.made import inventory, plan

PS = "[hosts.p]\nps = 1\n[hosts.w]\nworkers = 2\n[hosts.e]\nevaluator = true"
SYNC = '[hosts.a]\nworkers = 1\n[hosts.b]\nworkers = 1\naddress = "10.0.0.2"'


def launches(hosts=PS, training="", top=""):
    made = inventory(hosts, training=training, top=top)
    return {x.task: x for x in launch.make(made, plan(hosts), "run-1", "f00d", "s3cret")}


# Beginning again


def test_what_restart_says_goes_to_every_task():
    told = launches(top='[restart]\nattempts = 3\nexits = [7, "SIGKILL"]')
    assert {task: order.policy for task, order in told.items()} == dict.fromkeys(
        told,
        Policy(
            attempts=3, window_s=3600.0, delay_s=1.0, max_delay_s=60.0, exits=[7, "SIGKILL"],
            frozen_timeout_s=20.0, stall_timeout_s=None,
        ),
    )  # fmt: skip


def test_a_job_may_have_its_own():
    told = launches(top="[restart]\nattempts = 3\ndelay_s = 9\n[restart.worker]\nattempts = 4")
    assert (told["ps:0"].policy.attempts, told["worker:0"].policy.attempts) == (3, 4)
    assert told["worker:0"].policy.delay_s == 9


def test_a_job_may_go_back_to_what_holds_where_nothing_is_said():
    told = launches(top="[restart]\nattempts = 3\n[restart.worker]\nattempts = 10")
    assert told["worker:0"].policy.attempts == 10


def test_a_ps_is_called_stalled_only_where_that_is_said_of_it():
    told = launches(top="[restart]\nstall_timeout_s = 9")
    assert (told["ps:0"].policy.stall_timeout_s, told["worker:0"].policy.stall_timeout_s) == (
        None,
        9,
    )
    said = launches(top="[restart.ps]\nstall_timeout_s = 9")
    assert (said["ps:0"].policy.stall_timeout_s, said["worker:0"].policy.stall_timeout_s) == (
        9,
        None,
    )


def test_every_key_of_restart_is_part_of_the_policy():
    assert {field.name for field in dataclasses.fields(Policy)} == {*RestartSettings.model_fields}


# Ending


def test_only_an_evaluator_goes_on_for_long_after_the_chief():
    told = launches(training="evaluator_grace_s = 77")
    assert told["evaluator:0"].linger_s == 77
    assert told["ps:0"].linger_s == told["worker:1"].linger_s == launch.STRAGGLERS_S


def test_how_long_a_run_may_last_goes_to_every_task():
    assert launches()["worker:0"].max_duration_s is None
    assert launches(training="max_duration_s = 5")["worker:0"].max_duration_s == 5


def test_a_logs_limit_is_told_in_bytes():
    assert launches(training="log_limit_mb = 2")["ps:0"].log_limit_bytes == 2_000_000


def test_a_last_checkpoint_at_a_stop_is_asked_of_those_that_train():
    told = launches(training="save_on_stop = true")
    assert [task for task, order in told.items() if "TFDEPLOY_SAVE_ON_STOP" in order.env] == [
        "worker:0",
        "worker:1",
    ]
    assert "TFDEPLOY_SAVE_ON_STOP" not in launches()["worker:0"].env


def test_a_task_that_hangs_can_tell_where():
    assert launches()["worker:0"].env["PYTHONFAULTHANDLER"] == "1"


# Who hears of whom


def test_all_tasks_hear_of_each_other_at_the_chiefs():
    circles = {task: order.circle for task, order in launches().items()}
    told = circles["ps:0"]
    near = dataclasses.replace(told, address="localhost")  # on the chief's own host
    assert circles == {"ps:0": told, "worker:0": near, "worker:1": near, "evaluator:0": told}
    assert (told.address, told.port, told.secret) == ("w", 2224, "s3cret")
    assert (told.chief, told.tasks) == ("worker:0", ["ps:0", "worker:0", "worker:1", "evaluator:0"])


def test_with_ps_the_chief_needs_them_alone():
    assert launches()["ps:0"].circle.needed == ["ps:0"]


def test_without_ps_the_chief_needs_every_other_worker():
    assert launches(SYNC)["worker:0"].circle.needed == ["worker:1"]


def test_the_chief_knows_that_it_is():
    assert [task for task, order in launches().items() if order.is_chief] == ["worker:0"]


def test_how_long_one_may_be_silent_is_told():
    assert launches(training="orphan_timeout_s = 12")["ps:0"].circle.orphan_timeout_s == 12


def test_nobody_keeps_copies_unless_that_is_asked():
    assert launches(SYNC)["worker:0"].circle.replicas == []


def test_an_evaluator_on_another_host_has_a_copy_to_read():
    order = launches()["evaluator:0"]
    assert order.circle.replicas == ["evaluator:0"]
    assert order.links == {"checkpoints": "../../replica"}
    deeper = launches(training='checkpoint_dir = "out/./saved/"')["evaluator:0"]
    assert deeper.links == {"out/saved": "../../../replica"}


def test_an_evaluator_beside_the_chief_reads_what_that_saves():
    order = launches("[hosts.w]\nworkers = 1\nevaluator = true")["evaluator:0"]
    assert order.circle.replicas == []
    assert order.links == {"checkpoints": "../../worker-0/work/checkpoints"}


@pytest.mark.parametrize("where", ["/shared/run", "."])
def test_an_evaluator_looks_itself_where_no_link_can_lead(where):
    order = launches(training=f'checkpoint_dir = "{where}"')["evaluator:0"]
    assert order.links == {}


def test_the_evaluators_own_supervisor_keeps_it_up_to_date():
    hosts = "[hosts.w]\nworkers = 1\n[hosts.x]\nps = 1\nworkers = 1\nevaluator = true"
    assert launches(hosts)["worker:0"].circle.replicas == ["evaluator:0"]


def test_the_evaluators_host_is_the_first_to_keep_a_copy():
    hosts = "[hosts.w]\nworkers = 1\n[hosts.x]\nps = 1\n[hosts.e]\nevaluator = true"
    assert launches(hosts, "replicas = 1")["worker:0"].circle.replicas == ["evaluator:0"]
    assert launches(hosts, "replicas = 2")["worker:0"].circle.replicas == ["evaluator:0", "ps:0"]


def test_copies_are_kept_on_other_hosts_one_task_each():
    hosts = "[hosts.w]\nworkers = 1\n[hosts.x]\nps = 2\nworkers = 1\n[hosts.y]\nworkers = 1"
    assert launches(hosts, "replicas = 1")["worker:0"].circle.replicas == ["ps:0"]
    assert launches(hosts, "replicas = 2")["worker:0"].circle.replicas == ["ps:0", "worker:2"]


def test_more_copies_than_other_hosts_are_refused():
    with pytest.raises(PlanError) as refused:
        launches(training="replicas = 3")
    assert str(refused.value) == (
        "training.replicas: 3 copies need as many hosts besides the chief's, found 2\n"
        "  lower it: a copy on the chief's own host would be lost with it"
    )


def test_a_whole_launch_survives_the_way_to_its_host():
    order = launches(training="replicas = 1", top="[restart]\nattempts = 1")["worker:1"]
    assert records.from_json(Launch, records.to_json(order)) == order
