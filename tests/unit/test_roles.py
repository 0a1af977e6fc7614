"""How a script is told its role: the very words and variables, and the {fields} of a template."""

from __future__ import annotations

import json

import pytest

from tfdeploy import launch, roles
from tfdeploy.cluster import Task
from tfdeploy.errors import InventoryError, PlanError
from unit.made import inventory, plan

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
    made = inventory(hosts, training=training)
    launches = launch.make(made, plan(hosts), "run", "release", "secret")
    return next(x for x in launches if x.task == task)


def refusal(training):
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
        (
            "dashed",
            [
                "--job-name=worker",
                "--task-index=1",
                "--ps-hosts=10.0.0.1:2222",
                f"--worker-hosts={WORKERS}",
            ],
        ),
        ("positional", ["worker", "1"]),
        ("environment", []),
        ("tf_config", []),
    ],
)
def test_each_role_adds_its_words(role, words):
    assert launched("worker:1", f'role = "{role}"').argv == ["python3", "train.py", *words]


def test_flags_name_only_the_jobs_there_are():
    alone = launched("worker:0", 'role = "flags"', "[hosts.a]\nworkers = 1")
    assert alone.argv[2:] == ["--job_name=worker", "--task_index=0", "--worker_hosts=a:2222"]
    chief = launched("chief:0", 'role = "flags"', "[hosts.a]\nchief = true")
    assert chief.argv[2:] == ["--job_name=chief", "--task_index=0", "--chief_hosts=a:2222"]


def test_an_evaluator_is_told_its_role_and_stands_in_no_flag():
    assert launched("evaluator:0", 'role = "flags"').argv[2:] == [
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
def test_tf_config_is_always_told(role, task, job, index):
    config = json.loads(launched(task, f'role = "{role}"').env["TF_CONFIG"])
    assert config == {"cluster": CLUSTER, "task": {"type": job, "index": index}}


def test_the_environment_tells_the_role_where_that_is_asked():
    env = launched("worker:1", 'role = "environment"').env
    told = {key: value for key, value in env.items() if key.endswith(("HOSTS", "INDEX", "NAME"))}
    assert told == {
        "JOB_NAME": "worker",
        "TASK_INDEX": "1",
        "PS_HOSTS": "10.0.0.1:2222",
        "WORKER_HOSTS": WORKERS,
    }
    assert json.loads(env["CLUSTER_SPEC"]) == CLUSTER


@pytest.mark.parametrize("role", ["flags", "positional", "tf_config"])
def test_no_other_role_sets_variables(role):
    env = launched("worker:1", f'role = "{role}"').env
    assert not {"JOB_NAME", "TASK_INDEX", "PS_HOSTS", "CLUSTER_SPEC"} & set(env)


def test_a_list_may_have_another_separator():
    argv = launched("worker:1", 'role_args = ["{worker_hosts:;}", "{worker_hosts: }"]').argv
    assert argv[-2:] == ["10.0.0.2:2222;10.0.0.2:2223", "10.0.0.2:2222 10.0.0.2:2223"]


def test_a_job_may_have_another_name_wherever_scripts_meet_it():
    named = '[training.ps]\nname = "dispatcher"\n[training.worker]\nname = "trainer"'
    told = launched("worker:1", f'role = "environment"\nrole_args = ["{{task}}"]\n{named}')
    assert told.argv[-1] == told.name == "trainer:1"
    assert json.loads(told.env["TF_CONFIG"]) == {
        "cluster": {"dispatcher": CLUSTER["ps"], "trainer": CLUSTER["worker"]},
        "task": {"type": "trainer", "index": 1},
    }
    assert told.env["DISPATCHER_HOSTS"] == "10.0.0.1:2222"
    assert told.env["TFDEPLOY_CHECKPOINT_DEVICE"].startswith("/job:trainer/task:0/")
    flags = launched("worker:1", f'role = "flags"\n{named}')
    assert flags.argv[2:4] == ["--job_name=trainer", "--task_index=1"]
    assert flags.argv[4] == "--dispatcher_hosts=10.0.0.1:2222"
    assert flags.task == "worker:1"


def test_two_jobs_of_one_name_are_refused():
    with pytest.raises(InventoryError, match='ps and worker would both be called "worker"'):
        inventory(HOSTS, training='[training.ps]\nname = "worker"')


def test_a_job_may_have_its_own_command_and_words():
    own = (
        'role_args = ["all"]\nenv = {A = "1", B = "1"}\nrole_env = {R = "{job}"}\n'
        '[training.evaluator]\ncommand = "python eval.py"\nrole_args = ["{index}"]\n'
        'env = {B = "2"}\nrole_env = {S = "{job}"}'
    )
    evaluator, worker = (launched(task, own) for task in ("evaluator:0", "worker:0"))
    assert evaluator.argv == ["python3", "eval.py", "0"]
    assert worker.argv == ["python3", "train.py", "all"]
    assert [evaluator.env.get(name) for name in "ABRS"] == ["1", "2", "evaluator", "evaluator"]
    assert [worker.env.get(name) for name in "ABRS"] == ["1", "1", "worker", None]


def test_a_file_tells_the_role():
    told = launched("worker:1", 'role_files = {"role.json" = \'{"me": "{task}"}\'}')
    assert told.files == {"role.json": '{"me": "worker:1"}'}


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
def test_a_task_that_is_alone_needs_no_port(hosts, training, ready):
    assert launched("worker:0", training, hosts).ready == ready


def test_role_args_follow_the_role():
    argv = launched("worker:1", 'role = "positional"\nrole_args = ["at", "{host}"]').argv
    assert argv[2:] == ["worker", "1", "at", "w"]


def test_role_env_is_filled():
    assert launched("ps:0", 'role_env = {WHO = "{job}/{index}"}').env["WHO"] == "ps/0"


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
    assert launched("worker:1", training).argv[-1] == f"<{worker}>"
    assert launched("evaluator:0", training).argv[-1] == f"<{evaluator}>"


def test_every_field_is_tested_above():
    made = plan(HOSTS)
    loaded = inventory(HOSTS)
    fields = roles.fields(made, made.chief, loaded.training, loaded.host("w"))
    told = test_each_field_becomes_its_value.pytestmark[0].args[1]
    assert set(fields) == {case[0] for case in told}


def test_only_the_chief_is_told_so():
    training = 'role_args = ["{is_chief}"]'
    told = {task: launched(task, training).argv[-1] for task in ("ps:0", "worker:0", "worker:1")}
    assert told == {"ps:0": "false", "worker:0": "true", "worker:1": "false"}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("{job}-{index}", "worker-1"),
        ("{{job}}", "{job}"),
        ("{{job}}={job}", "{job}=worker"),
        ("{{anything}}", "{anything}"),
        ('{"job": {"index": 1}}', '{"job": {"index": 1}}'),
        ("{}", "{}"),
        ("{0} {a-b} { job }", "{0} {a-b} { job }"),
        ("$(id) `id` \\{", "$(id) `id` \\{"),
    ],
)
def test_only_fields_are_replaced(text, filled):
    assert roles.fill(text, {"job": "worker", "index": "1"}, "here") == filled


def test_a_value_is_not_filled_again():
    assert roles.fill("{a}", {"a": "{b}", "b": "no"}, "here") == "{b}"


def test_an_unknown_field_is_met_with_the_nearest():
    refused = refusal('role_args = ["{indx}"]')
    assert refused.message == "training.role_args: found {indx}, which is no field"
    assert refused.hint.startswith("did you mean {index}? fields are address, checkpoint_dir, ")
    assert refused.hint.endswith("{{indx}} stands for the text itself")


def test_an_unknown_field_that_resembles_none_is_met_with_all():
    hint = refusal('role_args = ["{zzz}"]').hint
    assert hint == (
        "fields are address, checkpoint_dir, chief_address, chief_hosts, chief_port, cluster, "
        "host, index, is_chief, job, num_ps, num_workers, port, ps_hosts, python, task, "
        "worker_hosts; "
        "{{zzz}} stands for the text itself"
    )


@pytest.mark.parametrize(
    ("said", "key"),
    [
        ('command = "python {foo}"', "training.worker.command"),
        ('role_args = ["{foo}"]', "training.worker.role_args"),
        ('role_env = {A = "{foo}"}', "training.worker.role_env.A"),
    ],
)
def test_an_unknown_field_of_one_job_is_told_where_it_stands(said, key):
    refused = refusal(f'role_args = ["a"]\nrole_env = {{B = "b"}}\n[training.worker]\n{said}')
    assert refused.message == f"{key}: found {{foo}}, which is no field"


def test_what_is_said_of_chiefs_where_there_is_none_is_refused():
    made = inventory(HOSTS, training='[training.chief]\nname = "master"')
    with pytest.raises(PlanError, match="no host says chief = true, so worker:0 is the chief"):
        launch.check_chief(made.training, plan(HOSTS))
    with_chief = "[hosts.a]\nchief = true"
    launch.check_chief(made.training, plan(with_chief))


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
def test_a_file_stands_where_nothing_else_does(places, taken):
    files = ", ".join(f'"{place}" = ""' for place in places)
    made = inventory(HOSTS, training=f'checkpoint_dir = "out"\nrole_files = {{{files}}}')
    with pytest.raises(PlanError, match=f"^training.role_files.{places[0]}: {taken} would stand"):
        launch.check_files(made, ["train.py", "lib/x/z.py"])
    launch.check_files(inventory(HOSTS, training='role_files = {"c.json" = ""}'), ["train.py"])


def test_an_unknown_field_is_told_where_it_stands():
    assert refusal('role_env = {WHO = "{nobody}"}').message.startswith("training.role_env.WHO: ")
    made = inventory(HOSTS)
    training = made.training.model_copy(update={"command": ("run", "{nobody}")})
    with pytest.raises(PlanError, match=r"^training\.command: found {nobody}, which is no field"):
        changed = made.model_copy(update={"training": training})
        launch.make(changed, plan(HOSTS), "run", "release", "secret")


def test_the_hosts_of_an_evaluator_are_no_field_and_the_reason_is_said():
    refused = refusal('role_args = ["{evaluator_hosts}"]')
    assert refused.message == "training.role_args: found {evaluator_hosts}, which is no field"
    assert refused.hint == "an evaluator is not part of the cluster: nothing may dial it"


def test_the_chief_has_hosts_of_its_own():
    made = launched("chief:0", 'role_args = ["{chief_hosts}"]', "[hosts.a]\nchief = true")
    assert made.argv[-1] == "a:2222"
    assert Task.parse(made.task).job == "chief"
