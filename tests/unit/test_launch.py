"""A Launch is the complete order for one task: its program, its variables, its GPUs."""

from __future__ import annotations

import pytest

from tfdeploy import inventory as inventories
from tfdeploy import launch
from tfdeploy.errors import PlanError
from unit.made import FILE, inventory, plan, text

PS = "[hosts.p]\nps = 1\n[hosts.w]\nworkers = 1\n[hosts.e]\nevaluator = true"
DEVICE = "TFDEPLOY_CHECKPOINT_DEVICE"


def launches(hosts="[hosts.a]\nworkers = 1", training="", top=""):
    made = inventory(hosts, training=training, top=top)
    return {x.task: x for x in launch.make(made, plan(hosts), "run-1", "f00d", "s3cret")}


def with_command(command, hosts="[hosts.a]\nworkers = 1"):
    return inventories.parse(text(hosts).replace('"python train.py"', command), FILE)


def argv(command, hosts="[hosts.a]\nworkers = 1"):
    return launch.make(with_command(command, hosts), plan(hosts), "run-1", "f00d", "x")[0].argv


# The whole order


def test_a_launch_holds_all_that_the_host_must_know():
    made = launches(
        '[hosts.a]\naddress = "10.0.0.1"\ngpus = [3]\nworkers = 1', "stop_grace_s = 2.5"
    )["worker:0"]
    assert (made.project, made.run, made.release, made.task) == ("p", "run-1", "f00d", "worker:0")
    assert (made.port, made.gpus, made.stop_grace_s) == (2222, [3], 2.5)
    assert (made.checkpoint_dir, made.no_proxy) == ("checkpoints", ["10.0.0.1"])


def test_no_address_of_the_plan_goes_through_a_proxy():
    made = launches("[hosts.b]\nps = 1\n[hosts.a]\nworkers = 2")
    assert made["worker:1"].no_proxy == ["a", "b"]


def test_launches_stand_in_the_order_of_starting():
    hosts = "[hosts.a]\nchief = true\nworkers = 1\nps = 1\nevaluator = true"
    assert list(launches(hosts)) == ["ps:0", "worker:0", "chief:0", "evaluator:0"]


# The program


@pytest.mark.parametrize("word", ["python", "python3"])
def test_the_word_python_becomes_the_hosts_python(word):
    hosts = '[hosts.a]\nworkers = 1\npython = "/opt/py"'
    assert argv(f'"{word} train.py"', hosts) == ["/opt/py", "train.py"]


@pytest.mark.parametrize("program", ["./python", "bash", "/usr/bin/python", "python3.12"])
def test_any_other_program_is_left_alone(program):
    assert argv(f'["{program}", "python"]') == [program, "python"]


def test_words_are_never_split_or_joined():
    assert argv('["python", "a b", "$(id)", "", "\'"]')[1:] == ["a b", "$(id)", "", "'"]


# The environment


def test_gpus_are_shown_to_their_task_alone():
    made = launches("[hosts.a]\ngpus = [2, 5]\nps = 1\nworkers = 1\ngpus_per_worker = 2")
    assert made["worker:0"].env["CUDA_VISIBLE_DEVICES"] == "2,5"
    assert made["ps:0"].env["CUDA_VISIBLE_DEVICES"] == "-1"


def test_the_hosts_environment_stands_over_the_trainings():
    made = launches('[hosts.a]\nworkers = 1\nenv = {B = "host"}', 'env = {A = "all", B = "all"}')
    env = made["worker:0"].env
    assert (env["A"], env["B"]) == ("all", "host")


def test_the_role_stands_over_both():
    training = 'role_env = {A = "role"}\nenv = {A = "all"}'
    made = launches('[hosts.a]\nworkers = 1\nenv = {A = "host"}', training)
    assert made["worker:0"].env["A"] == "role"


def test_the_environment_is_given_as_it_is_written():
    assert launches(training='env = {A = "{job} $HOME"}')["worker:0"].env["A"] == "{job} $HOME"


def test_output_and_dead_peers_are_dealt_with_unless_said_otherwise():
    assert launches()["worker:0"].env["PYTHONUNBUFFERED"] == "1"
    assert launches()["worker:0"].env["GRPC_FAIL_FAST"] == "use_caller"
    own = launches(training='env = {GRPC_FAIL_FAST = "false"}')["worker:0"]
    assert own.env["GRPC_FAIL_FAST"] == "false"


def test_with_ps_the_chief_saves_on_its_own_disk():
    made = launches(PS)
    assert made["ps:0"].env[DEVICE] == "/job:worker/task:0/device:CPU:0"
    assert made["worker:0"].env[DEVICE] == "/job:worker/task:0/device:CPU:0"
    chief = launches("[hosts.p]\nps = 1\n[hosts.w]\nworkers = 1\nchief = true")["worker:0"]
    assert chief.env[DEVICE] == "/job:chief/task:0/device:CPU:0"


def test_an_evaluator_saves_as_tensorflow_does():
    assert DEVICE not in launches(PS)["evaluator:0"].env


def test_without_ps_tensorflow_saves_as_it_does():
    assert DEVICE not in launches("[hosts.a]\nworkers = 2")["worker:0"].env


def test_saving_on_the_chief_can_be_turned_off():
    assert DEVICE not in launches(PS, "checkpoints_on_chief = false")["worker:0"].env


# The script


def refusal(command, files):
    made = with_command(command)
    with pytest.raises(PlanError) as refused:
        launch.check_script(made, files)
    return str(refused.value)


def test_a_script_that_is_not_pushed_is_refused_with_the_nearest():
    assert refusal('"python trian.py"', ["data.py", "train.py"]) == (
        f"training.command: trian.py is not among the files that would be pushed from {FILE.parent}"
        "\n  did you mean train.py?"
    )


def test_a_script_that_resembles_none_is_refused_with_where_to_look():
    assert refusal('"python3 ./x.py"', ["train.sh"]).endswith(
        "\n  see source.path, source.exclude and .gitignore"
    )


@pytest.mark.parametrize(
    "command",
    ['"python ./train.py"', '"python train.py"', '"python -m train"', '"bash gone.sh"', '"python"',
     '"python /opt/gone.py"', '"python ~/gone.py"', '"python {job}.py"', '"run gone.py"'],
)  # fmt: skip
def test_what_may_well_be_there_is_not_refused(command):
    launch.check_script(with_command(command), ["train.py"])


def test_a_field_within_the_scripts_name_is_not_refused():
    launch.check_script(with_command('"python train_{job}.py"'), ["train_ps.py", "train_worker.py"])
