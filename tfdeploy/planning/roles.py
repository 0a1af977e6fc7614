"""Pass a task's role to its script: by flags, words, environment, files, or TF_CONFIG; and what the
{fields} of a command stand for in one task of a run. Pure."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfdeploy.config import WORKER_VARIABLES
from tfdeploy.config.cluster import JOBS, Task, tf_config
from tfdeploy.errors import PlanError
from tfdeploy.planning import trials
from tfdeploy.shared.records import TASK_DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdeploy.config.cluster import ClusterSpec
    from tfdeploy.config.inventory import Inventory, Training
    from tfdeploy.planning.plan import Placement, Plan


# {name} is a field, and {{name}} is the text {name}; other braces, such as JSON's, stay.
# {data:NAME} is a field, too. {ps_hosts:;} is a list with ";" instead of "," between its items.
NAME = r"[A-Za-z_]+|data:[^{}\s][^{}]*"
FIELD = re.compile(rf"\{{\{{({NAME})\}}\}}|\{{({NAME})\}}|\{{([a-z]+_hosts):([^{{}}]+)\}}")


def template_fields(
    plan: Plan, placement: Placement, training: Training, python: str
) -> dict[str, str]:
    """Return the value of every {field} of a command, role_args, role_env or role_files."""
    cluster, task = plan.cluster, script_task(training, placement.task)
    hosts = {f"{j}_hosts": ",".join(cluster.get(j, ())) for j in JOBS if j != "evaluator"}
    return {
        "task": str(task),
        "job": task.job,
        "index": str(task.index),
        "address": placement.address,
        "port": _port(placement),
        "host": placement.host,
        "cluster": json.dumps(script_cluster(training, plan)),
        "num_ps": str(len(cluster.get("ps", ()))),
        "num_workers": str(len(cluster.get("worker", ()))),
        "is_chief": "true" if placement == plan.chief else "false",
        "chief_address": plan.chief.address,
        "chief_port": _port(plan.chief),
        "checkpoint_dir": training.checkpoint_dir,
        "python": python,
        **hosts,
    }


def data_fields(inventory: Inventory, job: str) -> dict[str, str]:
    """Return the fields {data:NAME} with the path in the task's directory; "" if the job does not
    see the data set. A ps gets every path: its command is often the workers', and it reads none."""
    return {
        f"data:{place}": f"{TASK_DIRECTORY}/{place}" if job in (*data.jobs, "ps") else ""
        for place, data in inventory.data.items()
    }


def role_arguments(training: Training, plan: Plan, placement: Placement) -> tuple[str, ...]:
    """Return the words that the role adds to the command. A job without tasks adds no flag."""
    task, cluster = script_task(training, placement.task), script_cluster(training, plan).items()
    match training.role:
        case "flags":
            hosts = (f"--{name}_hosts={','.join(a)}" for name, a in cluster)
            return (f"--job_name={task.job}", f"--task_index={task.index}", *hosts)
        case "positional":
            return (task.job, str(task.index))
        case _:
            return ()


def role_environment(training: Training, plan: Plan, placement: Placement) -> dict[str, str]:
    """Return the variables that pass the role; TF_CONFIG is always one of them."""
    cluster = script_cluster(training, plan)
    task = script_task(training, placement.task)
    env = {"TF_CONFIG": tf_config(cluster, task)}
    if training.role == "environment":
        env |= {"JOB_NAME": task.job, "TASK_INDEX": str(task.index)}
        env |= {f"{job.upper()}_HOSTS": ",".join(a) for job, a in cluster.items()}
        env |= {"CLUSTER_SPEC": json.dumps(cluster)}
    elif training.role in WORKER_VARIABLES and placement.task.job != "evaluator":
        fields = _worker_fields(training.role, plan, placement)
        env |= {
            name: text.format(**fields) for name, text in WORKER_VARIABLES[training.role].items()
        }
    return env


def _worker_fields(role: str, plan: Plan, placement: Placement) -> dict[str, str]:
    """Return the fields of WORKER_VARIABLES. Raises PlanError if other tasks have a port."""
    others = [str(p.task) for p in plan.placements if p.task.job not in ("worker", "evaluator")]
    if others:
        raise PlanError(
            f'training.role: role = "{role}" numbers the workers; found {others[0]}',
            "give hosts `workers` only: worker:0 is the chief",
        )
    return {
        "index": str(placement.task.index),
        "count": str(len(plan.cluster["worker"])),
        "address": plan.chief.address,
        "port": _port(plan.chief),
    }


def script_task(training: Training, task: Task) -> Task:
    """Return the task with its job's name in scripts, which its own gRPC server reports."""
    return Task(training.job_name(task.job), task.index)


def script_cluster(training: Training, plan: Plan) -> ClusterSpec:
    """Return the cluster with the jobs' names in scripts."""
    return {training.job_name(job): addresses for job, addresses in plan.cluster.items()}


def fill_template(text: str, values: Mapping[str, str], key: str) -> str:
    """Replace every {field} in `text`, the value of `key`.

    Raises PlanError for an unknown field, and for one without a value: the task does not see that
    data set.
    """

    def replace(match: re.Match[str]) -> str:
        literal, plain, hosts, separator = match.groups()
        if literal is not None:
            return "{" + literal + "}"
        name = plain or hosts
        if name not in values:
            raise PlanError(f"{key}: unknown field {{{name}}}", _suggest_field(name, values))
        if name.startswith("data:") and not values[name]:
            raise PlanError(
                f"{key}: {values['task']} does not see the data set of {{{name}}}",
                f'add its job to jobs of [data."{name.removeprefix("data:")}"], or give the job '
                "its own value in a table such as [training.evaluator]",
            )
        return values[name].replace(",", separator or ",")

    return FIELD.sub(replace, text)


def _port(placement: Placement) -> str:
    return "" if placement.port is None else str(placement.port)


def _suggest_field(name: str, values: Mapping[str, str]) -> str:
    if name == "evaluator_hosts":
        return "an evaluator is not part of the cluster: no task may connect to it"
    data = [field for field in values if field.startswith("data:")]
    is_data = name.startswith("data:")
    known = sorted(data if is_data else set(values) - {*data})
    close = difflib.get_close_matches(name, known, n=1)
    suggestion = f"did you mean {{{close[0]}}}? " if close else ""
    fields = f"the fields are {', '.join(known)}"
    if is_data:
        names = ", ".join(field.removeprefix("data:") for field in known)
        fields = f"the data sets are {names}" if names else "hosts.toml has no [data] table"
    return f"{suggestion}{fields}; for the text itself write {{{{{name}}}}}"


@dataclass(frozen=True)
class RunNames:
    """What names a run: its id, its release, the user's name for it ("" for none), the release of
    each data set by its place, and the environment of each host, if it has one."""

    run: str
    release: str
    name: str = ""
    data: Mapping[str, str] = field(default_factory=dict)
    environments: Mapping[str, str] = field(default_factory=dict)


def values_of(
    inventory: Inventory, plan: Plan, placement: Placement, names: RunNames
) -> dict[str, str]:
    """Return the value of every {field} for one task."""
    environment = names.environments.get(placement.host, "")
    python = inventory.host(placement.host).task_python(inventory.project, environment)
    values = {
        **template_fields(plan, placement, inventory.training, python),
        **(data_fields(inventory, placement.task.job) if inventory.data else {}),
        "run": names.run,
        "release": names.release,
        "name": names.name or names.run,
    }
    if not inventory.trials.points:
        return values
    for name in inventory.trials.params.keys() & {*values, trials.REPEAT}:
        raise PlanError(
            f"trials.params: {name} is the name of a {{field}} of commands",
            "give the option another name",
        )
    return {**values, **trials.fields(inventory.trials)}


def check_word_fields(
    inventory: Inventory, plan: Plan, names: RunNames, words: Sequence[str]
) -> None:
    """Raise PlanError for an unknown {field} in the words that the command line adds."""
    for placement in plan.placements:
        if getattr(inventory.training, placement.task.job).command is None:
            values = values_of(inventory, plan, placement, names)
            for word in words:
                fill_template(word, values, f"-- {word}")
