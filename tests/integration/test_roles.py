"""Scripts get their role in every way that published scripts read it, without changes to them.

Each script in roles/ reads its role in one of these ways and prints it. The test runs it with the
arguments and the environment of its launch; tfdeploy itself runs the last one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.ports import free_ports
from support.projects import Project

from tfdeploy.commands.plan import plan_all
from tfdeploy.config import inventory

pytestmark = pytest.mark.slow

ROLES = Path(__file__).parent / "roles"
PS, W0, W1, CHIEF = "10.0.0.1:2222", "10.0.0.2:2222", "10.0.0.2:2223", "10.0.0.2:2224"
LISTS = {"ps": [PS], "workers": [W0, W1]}
SERVERS = {
    "p": {"address": "10.0.0.1", "ps": 1},
    "w": {"address": "10.0.0.2", "workers": 2},
}
WITH_CHIEF = {
    "p": SERVERS["p"],
    "w": {"address": "10.0.0.2", "workers": 2, "chief": True},
    "e": {"address": "10.0.0.3", "evaluator": True},
}
WORKERS = {"w": SERVERS["w"]}
SEMICOLONS = ["--chief-hosts={chief_hosts:;}", "--ps-hosts={ps_hosts:;}"]
SEMICOLONS += ["--worker-hosts={worker_hosts:;}"]
FULL = {"ps": [PS], "worker": [W0, W1], "chief": [CHIEF]}


def roles_of_tasks(folder, script, training, hosts):
    """Return the role that each task prints: {task: role}."""
    project = Project(folder, hosts, training={"role": "tf_config", **training})
    shutil.copy(ROLES / f"{script}.py", project.folder / "train.py")
    intent = plan_all(inventory.load(project.folder / "hosts.toml"))
    return {x.task: run_launch(x, project.folder) for x in intent.launches()}


def run_launch(launch, folder):
    argv = [sys.executable if word == "python3" else word for word in launch.process.argv]
    env = {**os.environ, **launch.process.env}
    done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def expected_roles(**more):
    """Return the roles of all tasks of SERVERS; `more` is equal in all of them."""
    tasks = {"ps:0": ["ps", 0], "worker:0": ["worker", 0], "worker:1": ["worker", 1]}
    return {task: {"me": me, **more} for task, me in tasks.items()}


@pytest.mark.parametrize(
    ("script", "training"),
    [
        ("flags_argparse", {"role": "flags"}),
        ("flags_absl", {"role": "flags"}),
        (
            "flags_apart",
            {"role_args": ["--job_name", "{job}", "--task_index", "{index}",
                           "--ps_hosts", "{ps_hosts}", "--worker_hosts", "{worker_hosts}"]},
        ),
        (
            "dashed",
            {"role_args": ["--job-name={job}", "--task-index={index}",
                           "--ps-hosts={ps_hosts}", "--worker-hosts={worker_hosts}"]},
        ),
        (
            "short",
            {"role_args": ["-j", "{job}", "-x{index}", "-p", "{ps_hosts}", "-w{worker_hosts}"]},
        ),
        ("environment", {"role": "environment"}),
        (
            "brackets",
            {"role_env": {"JOB_NAME": "{job}", "JOB_INDEX": "{index}",
                          "PS_HOSTS": "[{ps_hosts}]", "WORKER_HOSTS": "[{worker_hosts}]"}},
        ),
    ],
)  # fmt: skip
def test_a_script_gets_its_task_and_the_cluster(tmp_path, script, training):
    assert roles_of_tasks(tmp_path, script, training, SERVERS) == expected_roles(**LISTS)


def test_a_script_gets_a_cluster_spec_and_counts_in_variables(tmp_path):
    training = {
        "role": "environment",
        "role_env": {"WORKER_CNT": "{num_workers}", "TB_PORT": "6006"},
    }
    assert roles_of_tasks(tmp_path, "cluster_spec", training, SERVERS) == expected_roles(
        **LISTS, more=[2, 6006]
    )


def test_a_script_gets_job_and_index_as_two_words(tmp_path):
    assert (
        roles_of_tasks(tmp_path, "positional", {"role": "positional"}, SERVERS) == expected_roles()
    )


def test_a_script_gets_its_index_as_one_word(tmp_path):
    printed = roles_of_tasks(tmp_path, "index", {"role_args": ["{index}"]}, WORKERS)
    assert printed == {"worker:0": {"index": 0}, "worker:1": {"index": 1}}


def test_a_script_gets_counts_and_a_log_directory(tmp_path):
    words = ["--job-name={job}", "--task={index}", "--num-workers={num_workers}"]
    training = {"role_args": [*words, "--log-dir={checkpoint_dir}"], "checkpoint_dir": "logs"}
    assert roles_of_tasks(tmp_path, "numbers", training, SERVERS) == expected_roles(
        count=2, log="logs"
    )


def test_a_script_gets_its_own_address_as_a_url(tmp_path):
    words = ["--worker_grpc_url=grpc://{address}:{port}", "--worker_index={index}"]
    words += ["--num_workers={num_workers}", "--num_parameter_servers={num_ps}"]
    printed = roles_of_tasks(
        tmp_path, "grpc_url", {"role_args": [*words, "--grpc_port={port}"]}, SERVERS
    )
    assert printed["ps:0"] == {"own": [f"grpc://{PS}", 0, 2222], "counts": [1, 2]}
    assert printed["worker:1"] == {"own": [f"grpc://{W1}", 1, 2223], "counts": [1, 2]}


def test_a_script_gets_the_address_of_the_chief(tmp_path):
    words = ["--coord_host={chief_address}", "--controller_host={chief_address}:{chief_port}"]
    printed = roles_of_tasks(
        tmp_path, "coordinator", {"role_args": [*words, "--id={index}"]}, WORKERS
    )
    assert printed == {f"worker:{i}": {"id": i, "first": ["10.0.0.2", W0]} for i in (0, 1)}


def test_a_script_gets_lists_with_semicolons_and_a_flag_for_one_job(tmp_path):
    words = [*SEMICOLONS, "--worker-type={job}", "--worker-index={index}"]
    training = {"role_args": words, "evaluator": {"role_args": [*SEMICOLONS, "--evaluator"]}}
    printed = roles_of_tasks(tmp_path, "semicolons", training, WITH_CHIEF)
    lists = {"chief": [CHIEF], **LISTS}
    assert printed["evaluator:0"] == {"me": ["evaluator", 0], **lists}
    assert printed["worker:1"] == {"me": ["worker", 1], **lists}


@pytest.mark.parametrize(
    ("hosts", "cluster"),
    [
        (SERVERS, {"ps": [PS], "worker": [W0, W1]}),
        (WITH_CHIEF, FULL),
        (WORKERS, {"worker": [W0, W1]}),
    ],
    ids=["ps and workers", "a chief and an evaluator too", "workers alone"],
)
def test_a_script_gets_tf_config(tmp_path, hosts, cluster):
    for task, printed in roles_of_tasks(tmp_path, "tf_config", {}, hosts).items():
        job, index = task.split(":")
        assert printed == {"me": [job, int(index)], **cluster}


def test_a_script_gets_tf_config_with_a_master_instead_of_a_chief(tmp_path):
    printed = roles_of_tasks(tmp_path, "tf_config", {"chief": {"name": "master"}}, WITH_CHIEF)
    assert printed["chief:0"] == {
        "me": ["master", 0], "ps": [PS], "worker": [W0, W1], "master": [CHIEF]
    }  # fmt: skip


def test_a_script_with_fixed_addresses_uses_them(tmp_path):
    local = {"transport": "local", "address": "localhost", "ps": 1, "workers": 2}
    hosts = {"here": {**local, "ports": [23451, 23452, 23453, 23454]}}
    printed = roles_of_tasks(tmp_path, "fixed", {"role": "positional"}, hosts)
    mine = {task: line["mine"].rpartition(":")[2] for task, line in printed.items()}
    assert mine == {"ps:0": "23451", "worker:0": "23452", "worker:1": "23453"}


def test_a_script_reads_a_role_file(tmp_path):
    """Run by tfdeploy itself: the host writes the file."""
    local = {"transport": "local", "python": sys.executable, "ports": free_ports(3), "workers": 2}
    training = {
        "command": ["python", "train.py"],
        "role": "tf_config",
        "role_args": ["--job={job}", "--task={index}", "--cluster=conf/cluster.json"],
        "role_files": {"conf/cluster.json": "{cluster}"},
        "ready": "process",
        "ready_timeout_s": 600,
    }
    hosts = {"here": {**local, "directory": str(tmp_path / "host")}}
    project = Project(tmp_path / "project", hosts, training=training)
    shutil.copy(ROLES / "json_file.py", project.folder / "train.py")
    assert '{"me": ["worker", 0], "worker": ["127.0.0.1:' in project.ok("run")
    # The other worker may be stopped before it prints: the chief's end is the end of the run.
    [file] = tmp_path.glob("host/*/runs/*/worker-1/work/conf/cluster.json")
    assert len(json.loads(file.read_text())["worker"]) == 2
