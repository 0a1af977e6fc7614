"""Launches: the program, the environment, the outputs and the GPUs of each task."""

from __future__ import annotations

import pytest
from support.builders import FILE, hosts_toml, make_inventory, make_plan

from tfdeploy.config import inventory as inventories
from tfdeploy.planning import launch
from tfdeploy.planning.roles import RunNames

PS = "[hosts.p]\nps = 1\n[hosts.w]\nworkers = 1\n[hosts.e]\nevaluator = true"
DEVICE = "TFDEPLOY_CHECKPOINT_DEVICE"


def launches(hosts="[hosts.a]\nworkers = 1", training="", top=""):
    inventory = make_inventory(hosts, training=training, top=top)
    return {
        x.task: x
        for x in launch.make(inventory, make_plan(hosts), RunNames("run-1", "f00d"), "s3cret")
    }


def with_command(command, hosts="[hosts.a]\nworkers = 1"):
    return inventories.parse(hosts_toml(hosts).replace('"python train.py"', command), FILE)


def argv(command, hosts="[hosts.a]\nworkers = 1"):
    return launch.make(
        with_command(command, hosts), make_plan(hosts), RunNames("run-1", "f00d"), "x"
    )[0].process.argv


# All fields


def test_a_launch_has_everything_that_the_host_needs():
    order = launches(
        '[hosts.a]\naddress = "10.0.0.1"\ngpus = [3]\nworkers = 1', "stop_grace_s = 2.5"
    )["worker:0"]
    assert (order.project, order.run, order.directory.release, order.task) == (
        "p",
        "run-1",
        "f00d",
        "worker:0",
    )
    assert (order.endpoint.port, order.gpus.indexes, order.limits.stop_grace_s) == (2222, [3], 2.5)
    assert (order.directory.checkpoint_dir, order.endpoint.no_proxy) == (
        "checkpoints",
        ["10.0.0.1"],
    )


def test_every_address_of_the_plan_bypasses_proxies():
    orders = launches("[hosts.b]\nps = 1\n[hosts.a]\nworkers = 2")
    assert orders["worker:1"].endpoint.no_proxy == ["a", "b"]


def test_launches_are_in_the_order_of_their_start():
    hosts = "[hosts.a]\nchief = true\nworkers = 1\nps = 1\nevaluator = true"
    assert list(launches(hosts)) == ["ps:0", "worker:0", "chief:0", "evaluator:0"]


# Environments


@pytest.mark.parametrize(
    ("directory", "python"),
    [
        ("~/.tfdeploy", "~/.tfdeploy/p/envs/e1/bin/python"),
        ("/data/{host}/", "/data/a/p/envs/e1/bin/python"),
    ],
)
def test_with_an_environment_python_is_its_python(directory, python):
    hosts = f'[hosts.a]\nworkers = 1\npython = "/usr/bin/python3"\ndirectory = "{directory}"'
    inventory = make_inventory(hosts, training='role_args = ["--python={python}"]')
    names = RunNames("run-1", "f00d", environments={"a": "e1"})
    [order] = launch.make(inventory, make_plan(hosts), names, "x")
    assert order.process.environment == "e1"
    assert order.process.argv == [python, "train.py", f"--python={python}"]


def test_without_an_environment_python_is_the_hosts(
    hosts='[hosts.a]\nworkers = 1\npython = "/x/py"',
):
    order = launches(hosts)["worker:0"]
    assert (order.process.environment, order.process.argv[0]) == ("", "/x/py")


# Outputs

ALL = [[True, r"(?s:.*/)?[^/]*(?:/|\Z)"]]


def outputs_of(hosts="[hosts.a]\nworkers = 2", training=""):
    orders = launches(hosts, training).items()
    return {task: (order.outputs.patterns, order.outputs.folders) for task, order in orders}


def test_by_default_all_tasks_have_the_same_outputs():
    assert outputs_of() == {"worker:0": (ALL, []), "worker:1": (ALL, [])}
    assert outputs_of(training="outputs = []") == {"worker:0": ([], []), "worker:1": ([], [])}


def test_a_job_may_have_its_own_outputs():
    found = outputs_of("[hosts.a]\nchief = true\nworkers = 1", '[training.worker]\noutputs = ["*"]')
    assert found == {"worker:0": (ALL, []), "chief:0": (ALL, [])}


def test_absolute_folders_and_patterns_are_separated():
    training = 'outputs = ["*", "/scratch/m"]\ncheckpoint_dir = "/scratch/c"'
    found = outputs_of(training=training)
    assert found == {"worker:0": (ALL, ["/scratch/m", "/scratch/c"]), "worker:1": (ALL, [])}


# The program


@pytest.mark.parametrize("word", ["python", "python3"])
def test_python_in_a_command_becomes_the_hosts_python(word):
    hosts = '[hosts.a]\nworkers = 1\npython = "/opt/py"'
    assert argv(f'"{word} train.py"', hosts) == ["/opt/py", "train.py"]


@pytest.mark.parametrize("program", ["./python", "bash", "/usr/bin/python", "python3.12"])
def test_any_other_program_stays_as_it_is(program):
    assert argv(f'["{program}", "python"]') == [program, "python"]


def test_arguments_are_never_split_or_joined():
    assert argv('["python", "a b", "$(id)", "", "\'"]')[1:] == ["a b", "$(id)", "", "'"]


JSON = """{"lr": 0.1, "layers": {"sizes": [64, 10]}, "x": {}}"""


def test_a_command_of_several_lines_may_have_json_and_line_breaks_in_words():
    command = f"""'''
  python train.py
    --config='{JSON}' --text="it's
two lines" --set {{{{lr}}}}
'''"""
    assert argv(command)[1:] == [
        "train.py", f"--config={JSON}", "--text=it's\ntwo lines", "--set", "{lr}"
    ]  # fmt: skip


def test_role_args_may_be_one_string_too():
    training = """role_args = '''--task={task} "a b" '{"a": 1}' '''"""
    assert launches(training=training)["worker:0"].process.argv[2:] == [
        "--task=worker:0",
        "a b",
        '{"a": 1}',
    ]


# The environment


def test_each_task_sees_only_its_own_gpus():
    orders = launches("[hosts.a]\ngpus = [2, 5]\nps = 1\nworkers = 1\ngpus_per_worker = 2")
    assert orders["worker:0"].process.env["CUDA_VISIBLE_DEVICES"] == "2,5"
    assert orders["ps:0"].process.env["CUDA_VISIBLE_DEVICES"] == "-1"


def test_env_of_a_host_overrides_that_of_training():
    orders = launches('[hosts.a]\nworkers = 1\nenv = {B = "host"}', 'env = {A = "all", B = "all"}')
    env = orders["worker:0"].process.env
    assert (env["A"], env["B"]) == ("all", "host")


def test_role_env_overrides_env():
    training = 'role_env = {A = "role"}\nenv = {A = "all"}'
    orders = launches('[hosts.a]\nworkers = 1\nenv = {A = "host"}', training)
    assert orders["worker:0"].process.env["A"] == "role"


def test_the_run_and_its_release_are_known_to_the_task():
    order = launches(training='role_env = {NAME = "{run} of {release}"}')["worker:0"]
    ids = order.run, order.directory.release
    assert order.process.env["NAME"] == " of ".join(ids)
    assert (order.process.env["TFDEPLOY_RUN"], order.process.env["TFDEPLOY_RELEASE"]) == ids


@pytest.mark.parametrize(("name", "found"), [("wide", "wide"), ("", "run-1")])
def test_a_run_has_a_name_or_else_its_id_is_its_name(name, found):
    inventory = with_command('"python train.py --name={name}"')
    names = RunNames("run-1", "f00d", name)
    order = launch.make(inventory, make_plan("[hosts.a]\nworkers = 1"), names, "x")[0]
    assert (order.process.argv[-1], order.process.env["TFDEPLOY_NAME"]) == (
        f"--name={found}",
        found,
    )


def test_env_is_not_a_template():
    assert (
        launches(training='env = {A = "{job} $HOME"}')["worker:0"].process.env["A"] == "{job} $HOME"
    )


def test_env_overrides_the_default_environment():
    assert launches()["worker:0"].process.env["PYTHONUNBUFFERED"] == "1"
    assert launches()["worker:0"].process.env["GRPC_FAIL_FAST"] == "use_caller"
    own = launches(training='env = {GRPC_FAIL_FAST = "false"}')["worker:0"]
    assert own.process.env["GRPC_FAIL_FAST"] == "false"


def test_with_ps_checkpoints_are_saved_on_the_chief():
    orders = launches(PS)
    assert orders["ps:0"].process.env[DEVICE] == "/job:worker/task:0/device:CPU:0"
    assert orders["worker:0"].process.env[DEVICE] == "/job:worker/task:0/device:CPU:0"
    chief = launches("[hosts.p]\nps = 1\n[hosts.w]\nworkers = 1\nchief = true")["worker:0"]
    assert chief.process.env[DEVICE] == "/job:chief/task:0/device:CPU:0"


def test_an_evaluator_has_no_checkpoint_device():
    assert DEVICE not in launches(PS)["evaluator:0"].process.env


def test_without_ps_there_is_no_checkpoint_device():
    assert DEVICE not in launches("[hosts.a]\nworkers = 2")["worker:0"].process.env


def test_saving_on_the_chief_can_be_turned_off():
    assert DEVICE not in launches(PS, "checkpoints_on_chief = false")["worker:0"].process.env


def test_a_task_whose_gpus_its_host_chooses_sees_none_before():
    order = launches("[hosts.a]\ngpus = 2\nworkers = 1\ngpus_shared = true")["worker:0"]
    assert (order.gpus.indexes, order.gpus.choice, order.gpus.shared) == ([0], [0, 1], True)
    assert "CUDA_VISIBLE_DEVICES" not in order.process.env
    chosen = order.on_gpus([1], {"CUDA_VISIBLE_DEVICES": "1"})
    assert (chosen.gpus.indexes, chosen.gpus.choice) == ([1], [])
    assert chosen.process.env["CUDA_VISIBLE_DEVICES"] == "1"
