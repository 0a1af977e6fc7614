"""A Plan and a Release become one Launch per task: the complete order to start it. Pure."""

from __future__ import annotations

import difflib
import os
import posixpath
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdeploy import roles
from tfdeploy.agent.records import PROCESS, SERVER, Circle, Launch, Policy
from tfdeploy.cluster import JOBS
from tfdeploy.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tfdeploy.inventory import Host, Inventory, RestartSettings, Training
    from tfdeploy.plan import Placement, Plan

PYTHON_WORDS = ("python", "python3")
NO_GPU = "-1"
# Source: without "use_caller" a dead peer fails RPCs at once where TensorFlow
# would wait; without the other a log shows nothing until its buffer is full.
DEFAULT_ENV = {
    "GRPC_FAIL_FAST": "use_caller",
    "PYTHONUNBUFFERED": "1",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # GPU 1 is the one that nvidia-smi, and the lease, call so
    "PYTHONFAULTHANDLER": "1",  # the stacks of a task that crashes, or is ended because it hangs
}
# Asynchronous workers end within a moment of each other; a worker in server.join() never does.
STRAGGLERS_S = 4.0
MEGA = 1000 * 1000
# From a task's directory: the copy of the newest checkpoint that a host keeps (see agent/paths.py).
COPY = "../../replica"


def make(
    inventory: Inventory,
    plan: Plan,
    run: str,
    release: str,
    secret: str,
    data: Mapping[str, str] = {},
) -> tuple[Launch, ...]:
    """One Launch per placement, in the plan's order. `secret` is what the run's tasks know each
    other by; `data` gives the release of each data set by its place. Raises PlanError for an
    unknown {field}, or for more replicas than hosts."""
    circle = _circle(inventory.training, plan, secret)
    common = (run, release, circle, data)
    return tuple(_launch(inventory, plan, p, *common) for p in plan.placements)


def check_script(inventory: Inventory, files: Collection[str]) -> None:
    """Refuse a command whose script isn't among the release's files. Raises PlanError."""
    training = inventory.training
    for key, command in {
        "training.command": training.command,
        **{f"training.{job}.command": getattr(training, job).command or () for job in JOBS},
    }.items():
        script = _script(command)
        if script and script not in files:
            close = difflib.get_close_matches(script, files, n=1)
            raise PlanError(
                f"{key}: {script} is not among the files that would be pushed "
                f"from {inventory.source_root}",
                f"did you mean {close[0]}?"
                if close
                else "see source.path, source.exclude and .gitignore",
            )


def _script(command: tuple[str, ...]) -> str:
    """The file of the source that the command runs; "" where we can't tell."""
    if len(command) < 2 or command[0] not in PYTHON_WORDS or not command[1].endswith(".py"):
        return ""
    script = command[1].removeprefix("./")
    return "" if script.startswith(("/", "~/")) or "{" in script else script


def check_chief(training: Training, plan: Plan) -> None:
    """Refuse what is said of chiefs where there is none: worker:0 would not hear it. Raises
    PlanError."""
    if plan.chief.task.job != "chief" and training.chief.model_fields_set:
        raise PlanError(
            f"training.chief: no host says chief = true, so {plan.chief.task} is the chief",
            "say [training.worker], or chief = true on a host",
        )


def check_files(inventory: Inventory, files: Collection[str]) -> None:
    """Refuse a file that tells the role where something else has its place. Raises PlanError."""
    training = inventory.training
    saves = posixpath.normpath(training.checkpoint_dir)
    for place in training.role_files:
        others = [other for other in training.role_files if other != place]
        places = (saves, *files, *inventory.data, *others)
        taken = next((other for other in places if _overlap(place, other)), None)
        if taken:
            raise PlanError(
                f"training.role_files.{place}: {taken} would stand at this place",
                "give the file another name",
            )


def check_data(inventory: Inventory, plan: Plan, files: Collection[str]) -> None:
    """Refuse a data set that no task needs, or whose place something else has: a file of the
    release, or what the chief saves. Raises PlanError."""
    jobs = {p.task.job for p in plan.placements}
    for place, data in inventory.data.items():
        if not jobs & {*data.jobs}:
            raise PlanError(
                f"data.{place}.jobs: no task is a {' or '.join(data.jobs)}",
                f"the jobs that there are: {', '.join(sorted(jobs))}",
            )
        if _overlap(place, os.path.normpath(inventory.training.checkpoint_dir)):
            raise PlanError(
                f"data.{place} is read-only, and training.checkpoint_dir, "
                f"{inventory.training.checkpoint_dir}, would lie in it or around it",
                "give one of them another place",
            )
        taken = next((file for file in files if _overlap(place, file)), None)
        if taken:
            raise PlanError(
                f"data.{place}: the source has {taken} at this place",
                f'add "/{min(taken, place, key=len)}" to source.exclude, or give it another place',
            )


def _overlap(one: str, other: str) -> bool:
    """Whether two paths are the same, or one lies within the other."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _circle(training: Training, plan: Plan, secret: str) -> Circle:
    chief = str(plan.chief.task)
    return Circle(
        address=plan.chief.address,
        port=plan.beacon_port,
        secret=secret,
        chief=chief,
        tasks=[str(p.task) for p in plan.placements],
        needed=[str(p.task) for p in plan.needed if p != plan.chief],
        replicas=_replicas(training, plan),
        orphan_timeout_s=training.orphan_timeout_s,
    )


def _replicas(training: Training, plan: Plan) -> list[str]:
    """The tasks whose supervisors keep a copy: one on each of the first other hosts, the
    evaluator's before all: it reads that copy."""
    reads = _evaluator_apart(training, plan)
    hosts = [host for host in plan.hosts if host != plan.chief.host]
    hosts.sort(key=lambda host: host != reads)  # the others stay in the plan's order
    if training.replicas > len(hosts):
        raise PlanError(
            f"training.replicas: {training.replicas} copies need as many hosts besides the "
            f"chief's, found {len(hosts)}",
            "lower it: a copy on the chief's own host would be lost with it",
        )
    count = max(training.replicas, reads is not None)
    # The evaluator's own supervisor: any other task's may end before it.
    return [str(plan.on(host)[-1 if host == reads else 0].task) for host in hosts[:count]]


def _evaluator_apart(training: Training, plan: Plan) -> str | None:
    """The evaluator's host, if it reads a copy of the checkpoints: it is not the chief's."""
    readers = {p.host for p in plan.placements if _links(training, plan, p)}
    return next(iter(readers - {plan.chief.host}), None)


def _links(training: Training, plan: Plan, placement: Placement) -> dict[str, str]:
    """Where an evaluator finds what the chief saves, under the same path as the chief. An absolute
    path is for the user to share."""
    place = posixpath.normpath(training.checkpoint_dir)
    if placement.task.job != "evaluator" or place == "." or place.startswith("/"):
        return {}
    chief = f"../../{plan.chief.task.file_name}/work/{place}"
    target = chief if placement.host == plan.chief.host else COPY
    return {place: posixpath.relpath(target, posixpath.dirname(place) or ".")}


def _launch(
    inventory: Inventory,
    plan: Plan,
    placement: Placement,
    run: str,
    release: str,
    circle: Circle,
    data: Mapping[str, str],
) -> Launch:
    training, host, job = inventory.training, inventory.host(placement.host), placement.task.job
    values = roles.fields(plan, placement, training, host)
    return Launch(
        project=inventory.project,
        run=run,
        job=job,
        index=placement.task.index,
        release=release,
        argv=_argv(training, plan, placement, values),
        env=_env(training, plan, placement, host, values),
        files={
            place: roles.fill(text, values, f"training.role_files.{place}")
            for place, text in training.role_files.items()
        },
        links=_links(training, plan, placement),
        ready=_ready(training, plan),
        name=values["task"],
        port=placement.port,
        gpus=list(placement.gpus),
        checkpoint_dir=training.checkpoint_dir,
        no_proxy=sorted({p.address for p in plan.placements}),
        ready_timeout_s=training.ready_timeout_s,
        stop_grace_s=training.stop_grace_s,
        linger_s=training.evaluator_grace_s if job == "evaluator" else STRAGGLERS_S,
        max_duration_s=training.max_duration_s,
        log_limit_bytes=training.log_limit_mb * MEGA,
        policy=_policy(inventory.restart.of(job)),
        # A host need not be able to dial its own address.
        circle=replace(circle, address="localhost") if host.name == plan.chief.host else circle,
        data={place: data[place] for place, each in inventory.data.items() if job in each.jobs},
    )


def _policy(settings: RestartSettings) -> Policy:
    return Policy(**{**settings.model_dump(), "exits": list(settings.exits)})


def _argv(
    training: Training, plan: Plan, placement: Placement, values: Mapping[str, str]
) -> list[str]:
    job = placement.task.job
    command, role_args = training.words(job)
    where = training.key(job, "command")
    first, *rest = [roles.fill(word, values, where) for word in command]
    program = values["python"] if first in PYTHON_WORDS else first
    where = training.key(job, "role_args")
    template = [roles.fill(word, values, where) for word in role_args]
    return [program, *rest, *roles.arguments(training, plan, placement), *template]


def _ready(training: Training, plan: Plan) -> str:
    """What makes a task READY. A task that is alone needs no port: there is nobody to dial it."""
    alone = sum(map(len, plan.cluster.values())) == 1
    return training.ready or (PROCESS if alone else SERVER)


def _env(
    training: Training, plan: Plan, placement: Placement, host: Host, values: Mapping[str, str]
) -> dict[str, str]:
    job = placement.task.job
    env, role_env = training.variables(job)
    told = {
        name: roles.fill(value, values, f"{training.key(job, 'role_env', name)}.{name}")
        for name, value in role_env.items()
    }
    return {
        **DEFAULT_ENV,
        **env,
        **host.env,
        **told,
        **roles.environment(training, plan, placement),
        **_inside(training, plan, placement),
        "CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in placement.gpus) or NO_GPU,
    }


def _inside(training: Training, plan: Plan, placement: Placement) -> dict[str, str]:
    """What tfdeploy/inside does in the training process, where it is asked to do anything."""
    trains = placement.task.job in ("worker", "chief")
    return {
        **_checkpoints_on_chief(training, plan, placement),
        **({"TFDEPLOY_END_AT_EXIT": "1"} if trains and "ps" in plan.cluster else {}),
        **({"TFDEPLOY_SAVE_ON_STOP": "1"} if trains and training.save_on_stop else {}),
    }


def _checkpoints_on_chief(training: Training, plan: Plan, placement: Placement) -> dict[str, str]:
    """Where Saver must run so that checkpoints need no shared filesystem."""
    wanted = training.checkpoints_on_chief and "ps" in plan.cluster
    if not wanted or not placement.task.in_cluster:
        return {}
    chief = roles.named(training, plan.chief.task)
    return {"TFDEPLOY_CHECKPOINT_DEVICE": f"/job:{chief.job}/task:{chief.index}/device:CPU:0"}
