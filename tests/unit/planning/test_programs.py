"""docs/programs.md: with the lines of a section, a program finds its role where it looks for it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.builders import make_inventory, make_plan

from tfdeploy.planning import launch
from tfdeploy.planning.roles import RunNames

PAGE = (Path(__file__).parents[3] / "docs/programs.md").read_text()
SECTIONS = dict(re.findall(r"^## (.*?)\n.*?```toml\n\[training\]\n(.*?)```", PAGE, re.M | re.S))
WORKERS = """
[hosts.a]
address = "10.0.0.1"
workers = 1
[hosts.b]
address = "10.0.0.2"
workers = 1
"""
CHIEF = f'{WORKERS}[hosts.c]\naddress = "10.0.0.3"\nchief = true'
ADDRESSES = ["10.0.0.1:2222", "10.0.0.2:2222"]


def without_command(lines):
    """Return lines of [training] without its command, which `make_inventory` adds."""
    return re.sub("command = .*\n", "", lines, count=1)


def launched(section, task, hosts=WORKERS):
    inventory = make_inventory(hosts, training=without_command(SECTIONS[section]))
    launches = launch.make(inventory, make_plan(hosts), RunNames("run", "release"), "secret")
    return next(each for each in launches if each.task == task)


# What a program does with its variables and its words: its number, how many there are, and the
# address of the first.


def tf_config(env, argv):
    config = json.loads(env["TF_CONFIG"])
    workers = config["cluster"]["worker"]
    return config["task"]["index"], len(workers), workers[0]


def flags(env, argv):
    given = dict(word.removeprefix("--").split("=") for word in argv[2:])
    workers = given["worker_hosts"].split(",")
    return int(given["task_index"]), len(workers), workers[0]


def torch(env, argv):
    master = f"{env['MASTER_ADDR']}:{env['MASTER_PORT']}"
    return int(env["RANK"]), int(env["WORLD_SIZE"]), master


def ranks(env, argv):
    given = dict(word.removeprefix("--").split("=") for word in argv[2:])
    master = f"{given['master_addr']}:{given['master_port']}"
    return int(given["rank"]), int(given["world_size"]), master


def jax(env, argv):
    coordinator = f"{env['COORDINATOR_ADDRESS']}:{env['COORDINATOR_PORT']}"
    assert coordinator == env["JAX_COORDINATOR_ADDRESS"]
    return int(env["PROCESS_ID"]), int(env["NUM_PROCESSES"]), coordinator


def sagemaker(env, argv):
    hosts = json.loads(env["SM_HOSTS"])
    return hosts.index(env["SM_CURRENT_HOST"]), len(hosts), hosts[0]


def slurm(env, argv):
    master = f"{env['MASTER_ADDR']}:{env['MASTER_PORT']}"
    return int(env["SLURM_PROCID"]), int(env["SLURM_NTASKS"]), master


@pytest.mark.parametrize(
    ("section", "read"),
    [
        ("TF_CONFIG", tf_config),
        ("Flags", flags),
        ("MASTER_ADDR and RANK", torch),
        ("Ranks as flags", ranks),
        ("COORDINATOR_ADDRESS and PROCESS_ID", jax),
        ("AIP_MODEL_DIR", tf_config),
        ("SM_HOSTS", sagemaker),
        ("SLURM_PROCID", slurm),
    ],
)
def test_a_program_finds_its_number_the_count_and_the_first_address(section, read):
    for index in (0, 1):
        order = launched(section, f"worker:{index}")
        assert read(order.process.env, order.process.argv) == (index, 2, ADDRESSES[0])


def test_keras_tuner_finds_its_oracle():
    orders = {
        task: launched("KERASTUNER_TUNER_ID", task, CHIEF) for task in ("chief:0", "worker:1")
    }
    names = {task: order.process.env["KERASTUNER_TUNER_ID"] for task, order in orders.items()}
    assert names == {"chief:0": "chief", "worker:1": "tuner1"}
    envs = [order.process.env for order in orders.values()]
    oracles = {(env["KERASTUNER_ORACLE_IP"], env["KERASTUNER_ORACLE_PORT"]) for env in envs}
    assert oracles == {("10.0.0.3", "2222")}
    assert [order.endpoint.ready for order in orders.values()] == ["port", "process"]


def data_service(training):
    hosts = WORKERS + '[hosts.c]\naddress = "10.0.0.3"\nps = 1\nchief = true'
    inventory = make_inventory(hosts, training=training)
    orders = launch.make(inventory, make_plan(hosts), RunNames("run", "release"), "secret")
    return {order.task: order for order in orders}


def test_all_of_tf_datas_service_but_the_trainer_listen():
    orders = data_service(without_command(SECTIONS["tf.data's service"]))
    ready = {task: order.endpoint.ready for task, order in orders.items()}
    assert ready == {"ps:0": "port", "worker:0": "port", "worker:1": "port", "chief:0": "process"}


def test_servers_of_tf_data_with_flags_find_their_dispatcher():
    [lines] = re.findall(r"add these lines:\n\n```toml\n\[training\]\n(.*?)```", PAGE, re.S)
    words = {
        task: order.process.argv[1:] for task, order in data_service(without_command(lines)).items()
    }
    assert words["ps:0"][1:] == ["--port=2222", "--is_dispatcher"]
    assert words["worker:1"][1:] == [
        "--port=2222", "--dispatcher_address=10.0.0.3:2222", "--worker_address=10.0.0.2:2222"
    ]  # fmt: skip
    assert words["chief:0"] == ["train.py", "--dispatcher_address=10.0.0.3:2222"]


def test_each_section_is_tried():
    tried = {"TF_CONFIG", "Flags", "MASTER_ADDR and RANK", "COORDINATOR_ADDRESS and PROCESS_ID"}
    tried |= {
        "AIP_MODEL_DIR",
        "SM_HOSTS",
        "SLURM_PROCID",
        "Ranks as flags",
        "KERASTUNER_TUNER_ID",
        "tf.data's service",
    }
    assert {*SECTIONS} == tried
