"""How a script is distributed is read from its text: over scripts that exist, and small ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfdeploy.config import inventory
from tfdeploy.init import program, strategy
from tfdeploy.init.placement import place
from tfdeploy.release import syntax
from unit.init.machines import machine

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted(path.parent.name for path in ROOT.glob("examples/*/train.py"))
WRITTEN_ELSEWHERE = ROOT / "tests" / "integration" / "roles"
FLAGS = """
parser.add_argument("--job_name", required=True)
parser.add_argument("--task_index")
parser.add_argument("--ps_hosts")
parser.add_argument("--worker_hosts")
"""


def recognize(text, **modules):
    files = {"train.py": text, **{f"{name}.py": module for name, module in modules.items()}}
    return strategy.recognize({name: syntax.read(each) for name, each in files.items()})


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_gets_the_role_and_the_tasks_of_its_own_hosts_toml(example):
    folder = ROOT / "examples" / example
    expected = inventory.load(folder / "hosts.toml")
    found = program.find(folder, None)
    recognized = strategy.recognize({path: each.syntax for path, each in found.files.items()})
    [keys] = place(recognized.tasks, [machine("this-machine")]).keys.values()
    [host] = expected.hosts
    assert recognized.role == expected.training.role
    assert recognized.role_args == expected.training.role_args
    assert keys.get("workers") == host.workers
    assert bool(keys.get("ps")) == bool(host.ps)
    assert keys.get("chief", False) == host.chief
    assert found.source == expected.source.path
    assert found.command == expected.training.command[: len(found.command)]
    need = recognized.keras_2
    assert bool(need and need.by_variable) == ("TF_USE_LEGACY_KERAS" in expected.training.env)
    flags = [word.partition("=")[0] for word in expected.training.command if "{" in word]
    assert flags in ([recognized.checkpoint_flag], [])


@pytest.mark.parametrize(
    ("script", "role", "role_args"),
    [
        ("flags_argparse", "flags", ()),
        ("flags_absl", "flags", ()),
        (
            "dashed",
            "tf_config",
            ("--job-name={job}", "--task-index={index}", "--ps-hosts={ps_hosts}",
             "--worker-hosts={worker_hosts}"),
        ),
        ("environment", "environment", ()),
        ("cluster_spec", "environment", ()),
        ("positional", "positional", ()),
        ("fixed", "positional", ()),
        ("tf_config", "tf_config", ()),
        (
            "flags_apart",
            "tf_config",
            ("--job_name", "{job}", "--ps_hosts", "{ps_hosts}", "--task_index", "{index}",
             "--worker_hosts", "{worker_hosts}"),
        ),
        (
            "numbers",
            "tf_config",
            ("--job-name={job}", "--task={index}", "--num-workers={num_workers}"),
        ),
        ("json_file", "tf_config", ("--job={job}", "--task={index}")),
        (
            "grpc_url",
            "tf_config",
            ("--worker_grpc_url=grpc://{address}:{port}", "--worker_index={index}",
             "--num_workers={num_workers}", "--num_parameter_servers={num_ps}",
             "--grpc_port={port}"),
        ),
        ("index", "tf_config", ()),  # one number could mean anything
    ],
)  # fmt: skip
def test_a_script_written_elsewhere_gets_the_role_that_it_reads(script, role, role_args):
    text = (WRITTEN_ELSEWHERE / f"{script}.py").read_text()
    recognized = recognize(text)
    assert (recognized.role, recognized.role_args) == (role, role_args)


@pytest.mark.parametrize(
    ("text", "role", "role_args"),
    [
        ("dist.init_process_group('gloo')", "torch", ()),
        ("rank = int(os.environ['RANK'])\nn = os.environ['WORLD_SIZE']", "torch", ()),
        ("from lightning import Trainer\nTrainer(num_nodes=2)", "torch", ()),
        ("from accelerate import Accelerator\nAccelerator()", "torch", ()),
        ("from transformers import Trainer\nTrainer(model)", "torch", ()),
        ("import deepspeed\ndeepspeed.initialize(model=m)", "torch", ()),
        (
            "f('--world_size')\nf('--rank')\nf('--master_addr')\nf('--master_port')\n"
            "rpc.init_rpc('trainer')",
            "torch",
            ("--world_size={num_workers}", "--rank={index}", "--master_addr={chief_address}",
             "--master_port={chief_port}"),
        ),
        ("import jax\njax.distributed.initialize(os.environ['COORDINATOR_ADDRESS'])", "jax", ()),
        (
            "f('--dist-url')\nf('--rank')\nf('--world-size')\ndist.init_process_group('gloo')",
            "torch",
            ("--dist-url=tcp://{chief_address}:{chief_port}", "--rank={index}",
             "--world-size={num_workers}"),
        ),
        (
            "import jax\nf('--coordinator_address')\nf('--num_processes')\nf('--process_id')\n"
            "jax.distributed.initialize(a.coordinator_address, a.num_processes, a.process_id)",
            "jax",
            ("--coordinator_address={chief_address}:{chief_port}",
             "--num_processes={num_workers}", "--process_id={index}"),
        ),
    ],
)  # fmt: skip
def test_a_program_of_another_framework_gets_its_role(text, role, role_args):
    recognized = recognize(text.replace("f('", "parser.add_argument('"))
    assert (recognized.role, recognized.role_args) == (role, role_args)


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        ("s = tf.distribute.ParameterServerStrategy(r)", strategy.PS_AND_CHIEF),
        ("s = tf.distribute.experimental.ParameterServerStrategy(r)", strategy.PS_AND_CHIEF),
        ("s = tf.distribute.MultiWorkerMirroredStrategy()", strategy.ALL_GPUS_EACH),
        ("from tensorflow.distribute import MirroredStrategy", strategy.ONE_WITH_ALL_GPUS),
        ("import json, os\nc = json.loads(os.environ['TF_CONFIG'])", strategy.WORKERS),
        ("c = os.environ['TF_CONFIG']\nif job == 'ps': serve()", strategy.PS_AND_WORKERS),
        ("c = os.environ['TF_CONFIG']\nj in ('ps', 'chief')", strategy.PS_AND_CHIEF),
        ("model.fit(x, y)", strategy.ONE),
        (FLAGS, strategy.PS_AND_WORKERS),
        ("job, index = sys.argv[1], sys.argv[2]\nServer(job == 'ps')", strategy.PS_AND_WORKERS),
        ("parser.add_argument('job_name')\nparser.add_argument('task_index')", strategy.WORKERS),
        ("data, out = sys.argv[1:]\nmodel.fit(data)", strategy.ONE),
        ("parser.add_argument('--task')\nmodel.fit(x)", strategy.ONE),
        ("import torch\ntorch.distributed.init_process_group('nccl')", strategy.WORKERS),
        ("import jax\njax.distributed.initialize()", strategy.WORKERS),
        ("import jax\ndistribution.initialize()", strategy.ONE),
        ("import transformers\ntransformers.pipeline('x')", strategy.ONE),
        ("import keras_tuner\nkeras_tuner.Hyperband(build)", strategy.CHIEF_AND_WORKERS),
        ("import kerastuner\nMirroredStrategy()", strategy.CHIEF_AND_WORKERS),
        ("TF_CONFIG; tf.data.experimental.service.DispatchServer(c)", strategy.ONE),
        ("j = os.environ['TF_CONFIG']\nDispatchServer(c)", strategy.DATA_SERVICE),
        ("import torch\nparser.add_argument('--rank')\nlora(rank)", strategy.ONE),
    ],
)
def test_the_tasks_follow_from_what_the_script_uses(text, tasks):
    assert recognize(text).tasks == tasks


def test_prose_about_a_strategy_is_not_its_use():
    text = '"""Not MirroredStrategy, nor TF_CONFIG."""\n# ParameterServerStrategy\nmodel.fit(x)'
    assert recognize(text).tasks == strategy.ONE


def test_the_script_counts_before_the_modules_that_it_imports():
    library = "tf.distribute.ParameterServerStrategy; tf.distribute.MirroredStrategy"
    found = recognize("s = tf.distribute.MirroredStrategy()", library=library)
    assert found.tasks == strategy.ONE_WITH_ALL_GPUS
    assert found.reasons == ("train.py uses MirroredStrategy: one worker with all GPUs",)


def test_an_imported_module_is_named_in_the_reason():
    found = recognize("import flags", flags=FLAGS)
    assert found.reasons == (
        "flags.py defines --job_name and --task_index: ps and workers, worker:0 is the chief",
    )


def test_a_script_that_names_two_strategies_says_so():
    text = (
        "tf.distribute.MirroredStrategy() if one else tf.distribute.MultiWorkerMirroredStrategy()"
    )
    assert recognize(text).reasons == (
        "train.py uses MultiWorkerMirroredStrategy (and names MirroredStrategy): workers only, "
        "worker:0 is the chief",
    )


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--model_dir"], "--model_dir"),
        (["--logdir", "--checkpoint_dir"], "--checkpoint_dir"),
        (["--log-dir"], "--log-dir"),
        (["--data_dir", "--export_dir"], ""),
    ],
)
def test_the_flag_for_checkpoints_is_recognized(flags, expected):
    text = "".join(f'parser.add_argument("{flag}")\n' for flag in flags)
    assert recognize(text).checkpoint_flag == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Session(checkpoint_dir='logdir')", "logdir"),
        ("checkpoint_dir = './training_checkpoints/'", "training_checkpoints"),
        ("Session(checkpoint_dir='checkpoints')", ""),
        ("Session(checkpoint_dir='/tmp/logdir')", ""),
        ("Session(checkpoint_dir='gs://bucket/x')", ""),
        ("Session(checkpoint_dir='../x')", ""),
        ("checkpoint_dir = ''", ""),
        ("parser.add_argument('--logdir')\nSession(checkpoint_dir='logdir')", ""),
    ],
)
def test_a_fixed_folder_for_checkpoints_is_recognized(text, expected):
    assert recognize(text).checkpoint_dir == expected


@pytest.mark.parametrize(
    ("text", "workers"),
    [
        ('ClusterSpec({"ps": ["a:1"], "worker": ["a:2"]})', 1),
        ('c = {"worker": ["a:2", "a:3"]}', 2),
        ('ClusterSpec({"ps": ps, "worker": workers})', 0),
        ('c = {"worker": ["a:1", *others]}', 0),
        ('x = {"worker": ["a"], "color": ["b"]}', 0),
    ],
)
def test_the_workers_that_a_program_lists_are_counted(text, workers):
    assert recognize(text).most_workers == workers


def test_flags_of_absl_and_tf_app_are_recognized():
    text = 'tf.app.flags.DEFINE_string("train_dir", "", "")\nflags.DEFINE_integer("n", 1, "")'
    assert recognize(text).checkpoint_flag == "--train_dir"


def test_a_flag_that_is_required_besides_the_role_is_named():
    text = FLAGS + 'add = parser.add_argument\nadd("--data_dir", required=True)'
    assert recognize(text).required == ("--data_dir",)
    absl = 'flags.DEFINE_string("data", None, "")\nflags.mark_flags_as_required(["data"])'
    assert recognize(absl).required == ("--data",)


@pytest.mark.parametrize("text", ["print 'python 2'", "x = 1\0"])
def test_a_text_that_is_no_python_is_refused(text):
    with pytest.raises(SyntaxError):
        syntax.read(text)
