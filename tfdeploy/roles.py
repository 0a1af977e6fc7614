"""How a script is told its role: flags, words, environment, files, or TF_CONFIG. Pure."""

from __future__ import annotations

import difflib
import json
import re
from typing import TYPE_CHECKING

from tfdeploy.cluster import JOBS, Task, tf_config
from tfdeploy.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdeploy.cluster import ClusterSpec
    from tfdeploy.inventory import Host, Training
    from tfdeploy.plan import Placement, Plan

# {name} is a field, {{name}} stands for the text {name}; other braces (JSON, say) are left alone.
# {ps_hosts:;} is a list with another separator than the comma.
FIELD = re.compile(r"\{\{([A-Za-z_]+)\}\}|\{([A-Za-z_]+)\}|\{([a-z]+_hosts):([^{}]+)\}")


def fields(plan: Plan, placement: Placement, training: Training, host: Host) -> dict[str, str]:
    """Every {name} that a command, role_args, role_env and role_files may hold, for one task."""
    cluster, task = plan.cluster, named(training, placement.task)
    hosts = {f"{j}_hosts": ",".join(cluster.get(j, ())) for j in JOBS if j != "evaluator"}
    return {
        "task": str(task),
        "job": task.job,
        "index": str(task.index),
        "address": placement.address,
        "port": _port(placement),
        "host": placement.host,
        "cluster": json.dumps(named_cluster(training, plan)),
        "num_ps": str(len(cluster.get("ps", ()))),
        "num_workers": str(len(cluster.get("worker", ()))),
        "is_chief": "true" if placement == plan.chief else "false",
        "chief_address": plan.chief.address,
        "chief_port": _port(plan.chief),
        "checkpoint_dir": training.checkpoint_dir,
        "python": host.python,
        **hosts,
    }


def arguments(training: Training, plan: Plan, placement: Placement) -> tuple[str, ...]:
    """What the role adds to the command. A job that the plan lacks adds no flag at all."""
    task, cluster = named(training, placement.task), named_cluster(training, plan).items()
    match training.role:
        case "flags":
            hosts = (f"--{name}_hosts={','.join(a)}" for name, a in cluster)
            return (f"--job_name={task.job}", f"--task_index={task.index}", *hosts)
        case "dashed":
            hosts = (f"--{name}-hosts={','.join(a)}" for name, a in cluster)
            return (f"--job-name={task.job}", f"--task-index={task.index}", *hosts)
        case "positional":
            return (task.job, str(task.index))
        case _:
            return ()


def environment(training: Training, plan: Plan, placement: Placement) -> dict[str, str]:
    """The variables that tell the role. TF_CONFIG is always among them."""
    cluster = named_cluster(training, plan)
    task = named(training, placement.task)
    told = {"TF_CONFIG": tf_config(cluster, task)}
    if training.role == "environment":
        told |= {"JOB_NAME": task.job, "TASK_INDEX": str(task.index)}
        told |= {f"{job.upper()}_HOSTS": ",".join(a) for job, a in cluster.items()}
        told |= {"CLUSTER_SPEC": json.dumps(cluster)}
    return told


def named(training: Training, task: Task) -> Task:
    """The task by the name that scripts have for its job: its own server answers with it."""
    return Task(training.named(task.job), task.index)


def named_cluster(training: Training, plan: Plan) -> ClusterSpec:
    """The cluster by the names that scripts have for its jobs."""
    return {training.named(job): addresses for job, addresses in plan.cluster.items()}


def fill(text: str, values: Mapping[str, str], where: str) -> str:
    """Replace every {name} in `text`. Raises PlanError for a name that isn't a field."""

    def one(found: re.Match[str]) -> str:
        literal, plain, hosts, separator = found.groups()
        if literal is not None:
            return "{" + literal + "}"
        name = plain or hosts
        if name not in values:
            raise PlanError(f"{where}: found {{{name}}}, which is no field", _hint(name, values))
        return values[name].replace(",", separator or ",")

    return FIELD.sub(one, text)


def _port(placement: Placement) -> str:
    return "" if placement.port is None else str(placement.port)


def _hint(name: str, values: Mapping[str, str]) -> str:
    if name == "evaluator_hosts":
        return "an evaluator is not part of the cluster: nothing may dial it"
    close = difflib.get_close_matches(name, values, n=1)
    meant = f"did you mean {{{close[0]}}}? " if close else ""
    known = ", ".join(sorted(values))
    return f"{meant}fields are {known}; {{{{{name}}}}} stands for the text itself"
