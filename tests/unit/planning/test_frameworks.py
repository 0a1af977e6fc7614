"""What a program's framework decides: the modules of `check`, and when its tasks are READY."""

from __future__ import annotations

import pytest
from support.builders import make_inventory, make_plan

from tfdeploy.planning import frameworks, launch
from tfdeploy.planning.roles import RunNames
from tfdeploy.shared.records import PORT, PROCESS, RENDEZVOUS, SERVER

TENSORFLOW = ("tensorflow",)


@pytest.mark.parametrize(
    ("texts", "imports"),
    [
        ([], TENSORFLOW),
        (["print(1)"], TENSORFLOW),
        (["import tensorflow as tf"], TENSORFLOW),
        (["import jax"], ("jax",)),
        (["import os\n\nimport jax.numpy as jnp\n"], ("jax",)),
        (["def main():\n    from torch import nn"], ("torch",)),
        (["import torch\nimport jax"], ("jax", "torch")),
        (["import jax\nimport tensorflow as tf"], TENSORFLOW),
        (["import torch", "from tensorflow import keras"], TENSORFLOW),
        (["import jax\nimport tensorflow_datasets"], ("jax",)),
        (["import jaxtyping"], TENSORFLOW),
        (["import os, torch"], ("torch",)),
        (["try:\n    import jax as j\nexcept ImportError:\n    pass"], ("jax",)),
        (["import lightning as L"], ("torch",)),
        (["from pytorch_lightning import Trainer"], ("torch",)),
        (["from accelerate import Accelerator"], ("torch",)),
        (["from flax import linen"], ("jax",)),
        (["import torch\nprint 'Python 2'"], ("torch",)),
        (["x = 'import jax'"], TENSORFLOW),
    ],
)
def test_the_imports_of_a_script_are_tensorflow_unless_it_imports_only_others(texts, imports):
    assert frameworks.imports_in(texts, make_inventory().training) == imports


@pytest.mark.parametrize(
    ("command", "imports"),
    [
        ("torchrun --nnodes=2 train.py", ("torch",)),
        ("~/torch/bin/torchrun train.py", ("torch",)),
        ("accelerate launch train.py", ("torch",)),
        ("python -m torch.distributed.run train.py", ("torch",)),
        ("python train.py", TENSORFLOW),
    ],
)
def test_a_command_that_starts_processes_of_pytorch_needs_no_tensorflow(command, imports):
    training = make_inventory(training=f'worker.command = "{command}"').training
    assert frameworks.imports_in(["import my_model"], training) == imports


def test_a_launcher_of_pytorch_is_run_by_the_tasks_python():
    hosts = '[hosts.a]\nworkers = 1\npython = "~/torch/bin/python"'
    inventory = make_inventory(hosts, training='worker.command = "torchrun train.py"')
    [made] = launch.make(inventory, make_plan(hosts), RunNames("r", "f"), "s")
    assert made.process.argv == ["~/torch/bin/python", "-m", "torch.distributed.run", "train.py"]


@pytest.mark.parametrize(
    ("training", "scripts"),
    [
        ("", ["train.py"]),
        ('worker.command = "./begin eval.py --x"', ["train.py", "eval.py"]),
        ('worker.command = "torchrun --nnodes=2 ./eval.py"', ["train.py", "eval.py"]),
        (
            """worker.command = ["sh", "-c", "cd x && python eval.py --a"]""",
            ["train.py", "eval.py"],
        ),
        ("worker.command = \"sh -c 'python eval.py'\"", ["train.py", "eval.py"]),
        ('worker.command = "accelerate launch eval.py"', ["train.py", "eval.py"]),
        (
            'worker.command = "python -m pkg.train a"',
            [
                "train.py",
                *("pkg/__init__.py", "pkg/train/__init__.py"),
                *("pkg/train.py", "pkg/train/__main__.py"),
            ],
        ),
    ],
)
def test_the_scripts_are_the_files_that_the_commands_name(training, scripts):
    assert frameworks.scripts(make_inventory(training=training).training) == scripts


def ready(training, hosts="[hosts.a]\nps = 1\nworkers = 1\nchief = true"):
    inventory = make_inventory(hosts, training=training)
    launches = launch.make(inventory, make_plan(hosts), RunNames("r", "f"), "s")
    return {each.task: each.endpoint.ready for each in launches}


def test_each_job_may_have_its_own_ready():
    training = 'ready = "port"\nworker.ready = "server"\nchief.ready = "process"'
    assert ready(training) == {"ps:0": PORT, "worker:0": SERVER, "chief:0": PROCESS}


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ("", SERVER),
        ('imports = ["jax"]', PROCESS),
        ("imports = []", PROCESS),
        ('imports = ["jax", "tensorflow.keras"]', SERVER),
        ('imports = ["jax"]\nready = "port"', PORT),
    ],
)
def test_a_program_without_tensorflow_is_ready_when_its_process_runs(training, expected):
    assert set(ready(training).values()) == {expected}


WORKERS = "[hosts.a]\nworkers = 2"


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ('role = "torch"', RENDEZVOUS),
        ('role = "jax"\nimports = ["jax"]', RENDEZVOUS),
        ('role = "jax"\nready = "process"', PROCESS),
        ('imports = ["torch"]\nrole_env = { MASTER_PORT = "{chief_port}" }', RENDEZVOUS),
        ('imports = ["jax"]\nworker.role_args = "--port={chief_port}"', RENDEZVOUS),
        ('role_env = { KERASTUNER_ORACLE_PORT = "{chief_port}" }', SERVER),
    ],
)
def test_tasks_that_learn_the_chiefs_port_meet_there(training, expected):
    assert set(ready(training, WORKERS).values()) == {expected}


def test_the_tasks_that_meet_know_the_chiefs_port():
    hosts = WORKERS + "\nports = [5000, 5001, 5002]\n[hosts.b]\nevaluator = true"
    inventory = make_inventory(hosts, training='role = "torch"')
    made = launch.make(inventory, make_plan(hosts), RunNames("r", "f"), "s")
    assert {each.task: (each.endpoint.ready, each.endpoint.master_port) for each in made} == {
        "worker:0": (RENDEZVOUS, 5000),
        "worker:1": (RENDEZVOUS, 5000),
        "evaluator:0": (PROCESS, None),
    }


def test_a_task_that_is_alone_is_ready_when_its_process_runs():
    assert ready("", "[hosts.a]\nworkers = 1") == {"worker:0": PROCESS}


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        ("else:\n    server.join()", True),
        ("tf.distribute.Server(cluster, job_name='worker').join()", True),
        ("tf_server.join()", True),
        ("thread.join()\n', '.join(names)", False),
        ("server.start()", False),
    ],
)
def test_workers_of_a_script_that_joins_its_server_wait_until_they_are_stopped(text, waits):
    assert frameworks.has_waiting_workers(["import tensorflow", text]) == waits
