"""How a script is told its role: flags, words, environment, TF_CONFIG, or a template. Pure."""

from __future__ import annotations

import difflib
import json
import re
from typing import TYPE_CHECKING

from tfdeploy.cluster import JOBS, tf_config
from tfdeploy.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdeploy.inventory import Host, Training
    from tfdeploy.plan import Placement, Plan

# {name} is a field, {{name}} stands for the text {name}; other braces (JSON, say) are left alone.
FIELD = re.compile(r"\{\{([A-Za-z_]+)\}\}|\{([A-Za-z_]+)\}")


def fields(plan: Plan, placement: Placement, training: Training, host: Host) -> dict[str, str]:
    """Every {name} that a command, role_args and role_env may hold, for one task."""
    cluster = plan.cluster
    hosts = {f"{job}_hosts": ",".join(cluster.get(job, ())) for job in JOBS if job != "evaluator"}
    return {
        "task": str(placement.task),
        "job": placement.task.job,
        "index": str(placement.task.index),
        "address": placement.address,
        "port": "" if placement.port is None else str(placement.port),
        "host": placement.host,
        "cluster": json.dumps(cluster),
        "num_ps": str(len(cluster.get("ps", ()))),
        "num_workers": str(len(cluster.get("worker", ()))),
        "is_chief": "true" if placement == plan.chief else "false",
        "checkpoint_dir": training.checkpoint_dir,
        "python": host.python,
        **hosts,
    }


def arguments(training: Training, plan: Plan, placement: Placement) -> tuple[str, ...]:
    """What the role adds to the command. A job that the plan lacks adds no flag at all."""
    task = placement.task
    match training.role:
        case "flags":
            hosts = (f"--{job}_hosts={','.join(a)}" for job, a in plan.cluster.items())
            return (f"--job_name={task.job}", f"--task_index={task.index}", *hosts)
        case "positional":
            return (task.job, str(task.index))
        case _:
            return ()


def environment(training: Training, plan: Plan, placement: Placement) -> dict[str, str]:
    """The variables that tell the role. TF_CONFIG is always among them."""
    task = placement.task
    told = {"TF_CONFIG": tf_config(plan.cluster, task)}
    if training.role == "environment":
        told |= {"JOB_NAME": task.job, "TASK_INDEX": str(task.index)}
        told |= {f"{job.upper()}_HOSTS": ",".join(a) for job, a in plan.cluster.items()}
        told |= {"CLUSTER_SPEC": json.dumps(plan.cluster)}
    return told


def fill(text: str, values: Mapping[str, str], where: str) -> str:
    """Replace every {name} in `text`. Raises PlanError for a name that isn't a field."""

    def one(found: re.Match[str]) -> str:
        literal, name = found.groups()
        if literal is not None:
            return "{" + literal + "}"
        if name not in values:
            raise PlanError(f"{where}: found {{{name}}}, which is no field", _hint(name, values))
        return values[name]

    return FIELD.sub(one, text)


def _hint(name: str, values: Mapping[str, str]) -> str:
    if name == "evaluator_hosts":
        return "an evaluator is not part of the cluster: nothing may dial it"
    close = difflib.get_close_matches(name, values, n=1)
    meant = f"did you mean {{{close[0]}}}? " if close else ""
    known = ", ".join(sorted(values))
    return f"{meant}fields are {known}; {{{{{name}}}}} stands for the text itself"
