"""Which trials [trials] and the command line describe, and what their slots start."""

from __future__ import annotations

import pytest
from support.builders import make_inventory

from tfdeploy.commands.intent import TrialKeys
from tfdeploy.commands.trials import plan_trials
from tfdeploy.errors import InventoryError, PlanError
from tfdeploy.planning import launch, placing
from tfdeploy.planning.roles import RunNames
from tfdeploy.shared.records import PROCESS

HOSTS = "[hosts.a]\nworkers = 1\n[hosts.b]\ngpus = 2\nworkers = 1\n[hosts.c]\nps = 1\n"
CPUS = "[hosts.a]\nworkers = 1\n"


def points(*params, seed=0, **given):
    inventory = make_inventory(CPUS)
    inventory = inventory.copy_with({"trials": inventory.trials.copy_with({"seed": seed})})
    return plan_trials(inventory, TrialKeys(tuple(params), **given)).trials.points


def launches(hosts=CPUS, *params, training="", **given):
    inventory = make_inventory(hosts, training=training)
    inventory = plan_trials(inventory, TrialKeys(tuple(params), **given))
    plan = placing.make_plan(inventory, {host.name: "10.0.0.1" for host in inventory.hosts})
    return launch.make(inventory, plan, RunNames("run", "release"), "secret")


def test_lists_give_every_combination():
    assert points("lr=0.1,0.01", "opt=adam,sgd") == (
        {"lr": "0.1", "opt": "adam"},
        {"lr": "0.1", "opt": "sgd"},
        {"lr": "0.01", "opt": "adam"},
        {"lr": "0.01", "opt": "sgd"},
    )


def test_random_draws_each_combination_of_lists_at_most_once():
    drawn = points("lr=1,2,3", "batch=1,2,3", random=7)
    assert len(drawn) == len({tuple(point.values()) for point in drawn}) == 7
    assert len(points("lr=1,2,3", random=7)) == 3


def test_equal_seeds_draw_equal_points():
    def draw(seed):
        return points("lr=1e-4..0.1:log", "width=16..256", random=5, seed=seed)

    assert draw(1) == draw(1) != draw(2)


def test_a_range_has_whole_numbers_between_two_of_them():
    for point in points("lr=1e-4..0.1:log", "width=16..256:log", random=50):
        assert 1e-4 <= float(point["lr"]) <= 0.1
        assert 16 <= int(point["width"]) <= 256


def test_repeated_trials_are_numbered():
    numbers = [point["repeat"] for point in points("lr=0.1,0.2", repeat=2)]
    assert numbers == ["0", "1", "0", "1"]


@pytest.mark.parametrize(
    ("params", "given", "message"),
    [
        (["lr"], {}, r'--param: found "lr"; expected NAME=VALUE'),
        ([], {}, "found no trials"),
        (["lr=1", "lr=2"], {}, "--param: found lr twice"),
        (["lr=1e-4..0.1"], {}, "lr is a range"),
        (["a=" + "1," * 200 + "1", "b=" + "1," * 200 + "1"], {}, "more than 10,000 combinations"),
        (["--lr=1,2"], {}, "expected the name of an option"),
        (["lr=2..1"], {"random": 1}, "expected from < to"),
        (["lr=1"], {"objective": "loss"}, "expected the name of a scalar and min or max"),
        (["lr=1"], {"stop_bad": True}, "stop_bad needs an objective"),
    ],
)
def test_what_is_no_search_is_refused(params, given, message):
    with pytest.raises((PlanError, InventoryError), match=message):
        points(*params, **given)


def test_a_parameter_with_the_name_of_a_field_is_refused():
    with pytest.raises(PlanError, match="port is the name of a"):
        launches(CPUS, "port=1,2")


def test_each_gpu_is_a_slot_and_each_host_without_any():
    found = launches(HOSTS, "lr=1,2")
    assert [(each.task, each.gpus.indexes) for each in found] == [
        ("worker:0", []),
        ("worker:1", [0]),
        ("worker:2", [1]),
        ("worker:3", []),
    ]


def test_a_slot_has_no_port_and_no_role():
    first, *_ = launches(HOSTS, "lr=1,2")
    assert (first.endpoint.port, first.endpoint.ready, first.heartbeat.needed) == (
        None,
        PROCESS,
        [],
    )
    assert "TF_CONFIG" not in first.process.env


def test_a_trial_gets_its_parameters_as_options():
    first = launches(CPUS, "lr=0.1,0.01", "batch=32")[0]
    assert first.of_trial(1).process.argv[-2:] == ["--lr=0.01", "--batch=32"]
    assert first.of_trial(1).process.env["TFDEPLOY_TRIAL"] == "1"
    assert not first.of_trial(1).trials.points


def test_a_command_can_name_a_parameter_instead():
    training = 'role_args = ["optimizer.lr={lr}"]\nrole_env = { BATCH = "{batch}" }\n'
    found = launches(CPUS, "lr=0.1,0.01", "batch=32", "seed=7", training=training)
    first = found[0].of_trial(0)
    assert first.process.argv[-2:] == ["optimizer.lr=0.1", "--seed=7"]
    assert first.process.env["BATCH"] == "32"


def test_repeated_trials_get_their_number_only_where_the_command_names_it():
    training = 'role_env = { SEED = "{repeat}" }'
    second = launches(CPUS, "lr=0.1", training=training, repeat=2)[0].of_trial(1)
    assert second.process.argv[-1] == "--lr=0.1"
    assert second.process.env["SEED"] == "1"


def test_other_runs_of_the_file_have_no_trials():
    inventory = make_inventory(CPUS + "[trials]\nparams = { lr = [0.1] }\n")
    plan = placing.make_plan(inventory, {"a": "10.0.0.1"})
    [only] = launch.make(inventory, plan, RunNames("run", "release"), "secret")
    assert only.endpoint.port
    assert not only.trials.points
    assert not any("lr" in word for word in only.process.argv)
    assert "TFDEPLOY_TRIAL" not in only.process.env


def test_the_record_of_a_run_plans_the_same_trials():
    inventory = plan_trials(make_inventory(CPUS), TrialKeys(("lr=1e-4..1:log",), random=3))
    read = type(inventory).from_record(inventory.to_record(), inventory.file)
    assert read.trials.points == inventory.trials.points


@pytest.mark.parametrize("text", ["lr=1..x", "lr=1e-4..0.1:lg", "lr=1..", "lr=1..2,3", "lr=1..inf"])
def test_a_mistyped_range_is_no_text(text):
    with pytest.raises((PlanError, InventoryError), match="two numbers"):
        points(text, random=3)


def test_a_text_may_have_dots():
    assert points("data=../a,b..c")[0] == {"data": "../a"}


def test_a_value_is_missing_between_two_commas():
    with pytest.raises(PlanError, match="NAME=VALUE,VALUE"):
        points("lr=0.1,,0.2")


def test_no_parameter_has_the_name_of_the_repetition():
    with pytest.raises(PlanError, match="repeat"):
        launches(CPUS, "repeat=1,2")
