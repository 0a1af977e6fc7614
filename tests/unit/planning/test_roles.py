"""Roles: the arguments, variables and files that pass them, and the {fields} of templates."""

from __future__ import annotations

import json

import pytest
from support.builders import make_inventory, make_plan

from tfdeploy.config import WORKER_VARIABLES
from tfdeploy.config.cluster import Task
from tfdeploy.errors import InventoryError, PlanError
from tfdeploy.planning import checks, launch, roles
from tfdeploy.planning.roles import RunNames

HOSTS = """
[hosts.p]
address = "10.0.0.1"
ps = 1
[hosts.w]
address = "10.0.0.2"
gpus = [3]
workers = 2
gpus_per_worker = 0
[hosts.e]
address = "10.0.0.3"
evaluator = true
"""
CLUSTER = {"ps": ["10.0.0.1:2222"], "worker": ["10.0.0.2:2222", "10.0.0.2:2223"]}
WORKERS = "10.0.0.2:2222,10.0.0.2:2223"


def launched(task, training="", hosts=HOSTS):
    inventory = make_inventory(hosts, training=training)
    launches = launch.make(inventory, make_plan(hosts), RunNames("run", "release"), "secret")
    return next(x for x in launches if x.task == task)


def plan_error(training):
    with pytest.raises(PlanError) as refused:
        launched("worker:0", training)
    return refused.value


# Roles


@pytest.mark.parametrize(
    ("role", "words"),
    [
        (
            "flags",
            [
                "--job_name=worker",
                "--task_index=1",
                "--ps_hosts=10.0.0.1:2222",
                f"--worker_hosts={WORKERS}",
            ],
        ),
        ("positional", ["worker", "1"]),
        ("environment", []),
        ("tf_config", []),
    ],
)
def test_each_role_adds_its_arguments(role, words):
    assert launched("worker:1", f'role = "{role}"').process.argv == ["python3", "train.py", *words]


def test_flags_name_only_the_jobs_of_the_plan():
    alone = launched("worker:0", 'role = "flags"', "[hosts.a]\nworkers = 1")
    assert alone.process.argv[2:] == [
        "--job_name=worker",
        "--task_index=0",
        "--worker_hosts=a:2222",
    ]
    chief = launched("chief:0", 'role = "flags"', "[hosts.a]\nchief = true")
    assert chief.process.argv[2:] == ["--job_name=chief", "--task_index=0", "--chief_hosts=a:2222"]


def test_an_evaluator_gets_its_role_but_is_in_no_list_of_hosts():
    assert launched("evaluator:0", 'role = "flags"').process.argv[2:] == [
        "--job_name=evaluator",
        "--task_index=0",
        "--ps_hosts=10.0.0.1:2222",
        f"--worker_hosts={WORKERS}",
    ]


@pytest.mark.parametrize("role", ["flags", "positional", "environment", "tf_config"])
@pytest.mark.parametrize(
    ("task", "job", "index"),
    [("ps:0", "ps", 0), ("worker:1", "worker", 1), ("evaluator:0", "evaluator", 0)],
)
def test_tf_config_is_always_set(role, task, job, index):
    config = json.loads(launched(task, f'role = "{role}"').process.env["TF_CONFIG"])
    assert config == {"cluster": CLUSTER, "task": {"type": job, "index": index}}


def test_role_environment_sets_the_role_in_variables():
    env = launched("worker:1", 'role = "environment"').process.env
    variables = {key: env[key] for key in env if key.endswith(("HOSTS", "INDEX", "JOB_NAME"))}
    assert variables == {
        "JOB_NAME": "worker",
        "TASK_INDEX": "1",
        "PS_HOSTS": "10.0.0.1:2222",
        "WORKER_HOSTS": WORKERS,
    }
    assert json.loads(env["CLUSTER_SPEC"]) == CLUSTER


WORKERS_ONLY = """
[hosts.a]
address = "10.0.0.1"
workers = 1
[hosts.b]
address = "10.0.0.2"
workers = 1
"""


def test_role_torch_sets_the_variables_of_torchrun():
    env = launched("worker:1", 'role = "torch"', WORKERS_ONLY).process.env
    assert {name: env[name] for name in WORKER_VARIABLES["torch"]} == {
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "2222",
        "RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": "1",
        "GROUP_RANK": "1",
    }


def test_role_jax_sets_the_coordinators_address_and_the_processs_number():
    env = launched("worker:1", 'role = "jax"', WORKERS_ONLY).process.env
    assert {name: env[name] for name in WORKER_VARIABLES["jax"]} == {
        "JAX_COORDINATOR_ADDRESS": "10.0.0.1:2222",
        "COORDINATOR_ADDRESS": "10.0.0.1",
        "COORDINATOR_PORT": "2222",
        "NUM_PROCESSES": "2",
        "PROCESS_ID": "1",
    }


@pytest.mark.parametrize("role", ["torch", "jax"])
@pytest.mark.parametrize("task", ["ps", "chief"])
def test_a_role_that_numbers_workers_refuses_other_tasks(role, task):
    hosts = f"{WORKERS_ONLY}[hosts.c]\n{task} = {'1' if task == 'ps' else 'true'}"
    with pytest.raises(PlanError, match=f'role = "{role}" numbers the workers; found {task}:0'):
        launched("worker:0", f'role = "{role}"', hosts)


@pytest.mark.parametrize("role", ["flags", "positional", "tf_config"])
def test_other_roles_set_no_such_variables(role):
    env = launched("worker:1", f'role = "{role}"').process.env
    assert not {"JOB_NAME", "TASK_INDEX", "PS_HOSTS", "CLUSTER_SPEC"} & set(env)


def test_a_list_field_may_have_another_separator():
    argv = launched("worker:1", 'role_args = ["{worker_hosts:;}", "{worker_hosts: }"]').process.argv
    assert argv[-2:] == ["10.0.0.2:2222;10.0.0.2:2223", "10.0.0.2:2222 10.0.0.2:2223"]


def test_the_name_of_a_job_is_used_everywhere_in_scripts():
    named = '[training.ps]\nname = "dispatcher"\n[training.worker]\nname = "trainer"'
    order = launched("worker:1", f'role = "environment"\nrole_args = ["{{task}}"]\n{named}')
    assert order.process.argv[-1] == order.endpoint.name == "trainer:1"
    assert json.loads(order.process.env["TF_CONFIG"]) == {
        "cluster": {"dispatcher": CLUSTER["ps"], "trainer": CLUSTER["worker"]},
        "task": {"type": "trainer", "index": 1},
    }
    assert order.process.env["DISPATCHER_HOSTS"] == "10.0.0.1:2222"
    assert order.process.env["TFDEPLOY_CHECKPOINT_DEVICE"].startswith("/job:trainer/task:0/")
    flags = launched("worker:1", f'role = "flags"\n{named}')
    assert flags.process.argv[2:4] == ["--job_name=trainer", "--task_index=1"]
    assert flags.process.argv[4] == "--dispatcher_hosts=10.0.0.1:2222"
    assert flags.task == "worker:1"


def test_two_jobs_with_one_name_are_refused():
    with pytest.raises(InventoryError, match='ps and worker have the same name "worker"'):
        make_inventory(HOSTS, training='[training.ps]\nname = "worker"')


def test_a_job_may_have_its_own_command_and_arguments():
    own = (
        'role_args = ["all"]\nenv = {A = "1", B = "1"}\nrole_env = {R = "{job}"}\n'
        '[training.evaluator]\ncommand = "python eval.py"\nrole_args = ["{index}"]\n'
        'env = {B = "2"}\nrole_env = {S = "{job}"}'
    )
    evaluator, worker = (launched(task, own) for task in ("evaluator:0", "worker:0"))
    assert evaluator.process.argv == ["python3", "eval.py", "0"]
    assert worker.process.argv == ["python3", "train.py", "all"]
    assert [evaluator.process.env.get(name) for name in "ABRS"] == [
        "1",
        "2",
        "evaluator",
        "evaluator",
    ]
    assert [worker.process.env.get(name) for name in "ABRS"] == ["1", "1", "worker", None]


def test_role_files_are_filled():
    order = launched("worker:1", 'role_files = {"role.json" = \'{"me": "{task}"}\'}')
    assert order.directory.files == {"role.json": '{"me": "worker:1"}'}


@pytest.mark.parametrize(
    ("hosts", "training", "ready"),
    [
        (HOSTS, "", "server"),
        (HOSTS, 'ready = "port"', "port"),
        ("[hosts.a]\nworkers = 1", "", "process"),
        ("[hosts.a]\nworkers = 1\nevaluator = true", "", "process"),
        ("[hosts.a]\nworkers = 1", 'ready = "server"', "server"),
        ("[hosts.a]\nworkers = 2", "", "server"),
    ],
)
def test_ready_needs_no_port_for_a_single_task_by_default(hosts, training, ready):
    assert launched("worker:0", training, hosts).endpoint.ready == ready


def test_role_args_follow_the_role():
    argv = launched("worker:1", 'role = "positional"\nrole_args = ["at", "{host}"]').process.argv
    assert argv[2:] == ["worker", "1", "at", "w"]


def test_role_env_is_filled():
    assert launched("ps:0", 'role_env = {ROLE = "{job}/{index}"}').process.env["ROLE"] == "ps/0"


# Fields


@pytest.mark.parametrize(
    ("field", "worker", "evaluator"),
    [
        ("task", "worker:1", "evaluator:0"),
        ("job", "worker", "evaluator"),
        ("index", "1", "0"),
        ("address", "10.0.0.2", "10.0.0.3"),
        ("port", "2223", ""),
        ("host", "w", "e"),
        ("cluster", json.dumps(CLUSTER), json.dumps(CLUSTER)),
        ("ps_hosts", "10.0.0.1:2222", "10.0.0.1:2222"),
        ("worker_hosts", WORKERS, WORKERS),
        ("chief_hosts", "", ""),
        ("chief_address", "10.0.0.2", "10.0.0.2"),
        ("chief_port", "2222", "2222"),
        ("num_ps", "1", "1"),
        ("num_workers", "2", "2"),
        ("is_chief", "false", "false"),
        ("checkpoint_dir", "out", "out"),
        ("python", "python3", "python3"),
    ],
)
def test_each_field_becomes_its_value(field, worker, evaluator):
    training = f'checkpoint_dir = "out"\nrole_args = ["<{{{field}}}>"]'
    assert launched("worker:1", training).process.argv[-1] == f"<{worker}>"
    assert launched("evaluator:0", training).process.argv[-1] == f"<{evaluator}>"


def test_every_field_is_covered_above():
    plan, inventory = make_plan(HOSTS), make_inventory(HOSTS)
    fields = roles.template_fields(plan, plan.chief, inventory.training, "python3")
    cases = test_each_field_becomes_its_value.pytestmark[0].args[1]
    assert set(fields) == {case[0] for case in cases}


def test_is_chief_is_true_only_for_the_chief():
    training = 'role_args = ["{is_chief}"]'
    is_chief = {
        task: launched(task, training).process.argv[-1] for task in ("ps:0", "worker:0", "worker:1")
    }
    assert is_chief == {"ps:0": "false", "worker:0": "true", "worker:1": "false"}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{job}-{index}", "worker-1"),
        ("{{job}}", "{job}"),
        ("{{job}}={job}", "{job}=worker"),
        ("{{anything}}", "{anything}"),
        ('{"job": {"index": 1}}', '{"job": {"index": 1}}'),
        ('{"a": {{b}}, "c": {}}', '{"a": {b}, "c": {}}'),
        ("{data:d/x}/part {{data:d/x}}", "/d/x/part {data:d/x}"),
        ("{data: 1} {{data: 1}}", "{data: 1} {{data: 1}}"),
        ("{}", "{}"),
        ("{0} {a-b} { job }", "{0} {a-b} { job }"),
        ("$(id) `id` \\{", "$(id) `id` \\{"),
    ],
)
def test_only_fields_are_replaced(text, filled):
    values = {"job": "worker", "index": "1", "data:d/x": "/d/x"}
    assert roles.fill_template(text, values, "here") == filled


def test_a_value_is_not_filled_again():
    assert roles.fill_template("{a}", {"a": "{b}", "b": "no"}, "here") == "{b}"


def test_an_unknown_field_suggests_the_nearest_one():
    error = plan_error('role_args = ["{indx}"]')
    assert error.message == "training.role_args: unknown field {indx}"
    assert error.hint.startswith("did you mean {index}? the fields are address, checkpoint_dir, ")
    assert error.hint.endswith("for the text itself write {{indx}}")


@pytest.mark.parametrize("text", ['{"a": {lr}}', '{ "x" : {lr} }', "{lr}}", "{{lr}", "{lr}: {}"])
def test_the_hint_for_an_unknown_field_says_how_to_write_the_text_itself(text):
    error = plan_error(f"role_args = ['--config={text}']")
    assert error.message == "training.role_args: unknown field {lr}"
    assert error.hint.endswith("; for the text itself write {{lr}}")


def test_an_unknown_field_that_resembles_none_lists_all_fields():
    hint = plan_error('role_args = ["{zzz}"]').hint
    assert hint == (
        "the fields are address, checkpoint_dir, chief_address, chief_hosts, chief_port, cluster, "
        "host, index, is_chief, job, name, num_ps, num_workers, port, ps_hosts, python, release, "
        "run, task, worker_hosts; "
        "for the text itself write {{zzz}}"
    )


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('command = "python {foo}"', "training.worker.command"),
        ('role_args = ["{foo}"]', "training.worker.role_args"),
        ('role_env = {A = "{foo}"}', "training.worker.role_env.A"),
    ],
)
def test_an_unknown_field_of_one_job_is_reported_with_the_jobs_key(line, key):
    error = plan_error(f'role_args = ["a"]\nrole_env = {{B = "b"}}\n[training.worker]\n{line}')
    assert error.message == f"{key}: unknown field {{foo}}"


def test_a_chief_table_without_a_chief_host_is_refused():
    inventory = make_inventory(HOSTS, training='[training.chief]\nname = "master"')
    with pytest.raises(PlanError, match="no host has chief = true, so worker:0 is the chief"):
        checks.check_chief(inventory.training, make_plan(HOSTS))
    with_chief = "[hosts.a]\nchief = true"
    checks.check_chief(inventory.training, make_plan(with_chief))


@pytest.mark.parametrize(
    ("places", "taken"),
    [
        (["train.py"], "train.py"),
        (["out/c.json"], "out"),
        (["out"], "out"),
        (["a", "a/b"], "a/b"),
        (["lib/x", "y"], "lib/x/z.py"),
    ],
)
def test_a_role_file_at_a_taken_path_is_refused(places, taken):
    files = ", ".join(f'"{place}" = ""' for place in places)
    inventory = make_inventory(HOSTS, training=f'checkpoint_dir = "out"\nrole_files = {{{files}}}')
    with pytest.raises(
        PlanError, match=f"^training.role_files.{places[0]}: its path is taken by {taken}\n"
    ):
        checks.check_files(inventory, ["train.py", "lib/x/z.py"])
    checks.check_files(make_inventory(HOSTS, training='role_files = {"c.json" = ""}'), ["train.py"])


def test_an_unknown_field_is_reported_with_its_key():
    assert plan_error('role_env = {ROLE = "{nobody}"}').message.startswith(
        "training.role_env.ROLE: "
    )
    inventory = make_inventory(HOSTS)
    training = inventory.training.copy_with({"command": ("run", "{nobody}")})
    with pytest.raises(PlanError, match=r"^training\.command: unknown field {nobody}"):
        changed = inventory.copy_with({"training": training})
        launch.make(changed, make_plan(HOSTS), RunNames("run", "release"), "secret")


def test_the_hint_for_evaluator_hosts_says_why_it_is_no_field():
    error = plan_error('role_args = ["{evaluator_hosts}"]')
    assert error.message == "training.role_args: unknown field {evaluator_hosts}"
    assert error.hint == "an evaluator is not part of the cluster: no task may connect to it"


def test_chief_hosts_is_the_address_of_the_chief():
    order = launched("chief:0", 'role_args = ["{chief_hosts}"]', "[hosts.a]\nchief = true")
    assert order.process.argv[-1] == "a:2222"
    assert Task.parse(order.task).job == "chief"
