"""Turn a Plan and a Release into Launches: all that a host needs to start a task. Pure."""

from __future__ import annotations

import hashlib
import posixpath
import re
import shlex
from typing import TYPE_CHECKING

from tfdeploy.config import ANY_SIGNAL
from tfdeploy.errors import PlanError
from tfdeploy.planning import frameworks, roles, trials
from tfdeploy.planning.checks import PYTHON_WORDS, refuse_too_long
from tfdeploy.release import gitignore
from tfdeploy.shared import records
from tfdeploy.shared.protocol.record import replace
from tfdeploy.shared.records import (
    PEER_ERRORS,
    RENDEZVOUS,
    VISIBLE,
    HeartbeatSettings,
    Launch,
    Notification,
    OutputSelection,
    Policy,
    visible_devices,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tfdeploy.config.inventory import Host, Inventory, Restart, Training
    from tfdeploy.planning.plan import Placement, Plan
    from tfdeploy.planning.roles import RunNames


DEFAULT_ENV = {
    "GRPC_FAIL_FAST": "use_caller",  # TensorFlow's default, whatever the host's environment says
    "PYTHONUNBUFFERED": "1",  # else a log shows nothing until Python's buffer is full
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # numbers GPUs as nvidia-smi and the leases do
    "PYTHONFAULTHANDLER": "1",  # the stacks of a task that crashes, or that is ended as it hangs
}
# How long workers may run after the chief whose end is the run's. Asynchronous workers end almost
# together; a worker in server.join() never ends.
STRAGGLERS_S = 4.0
MB = 1000 * 1000
# From a task's directory to the host's copy of the newest checkpoint (see agent/paths.py).
REPLICA = "../../replica"


def make(
    inventory: Inventory,
    plan: Plan,
    names: RunNames,
    secret: str,
    secrets: Mapping[str, str] = {},
    placements: Sequence[Placement] | None = None,
) -> tuple[Launch, ...]:
    """Return one Launch per placement, in the plan's order; only those of `placements`, if given.
    The arguments and errors are those of `maker`."""
    chosen = plan.placements if placements is None else placements
    return maker(inventory, plan, names, secret, secrets)(chosen)


def maker(
    inventory: Inventory,
    plan: Plan,
    names: RunNames,
    secret: str,
    secrets: Mapping[str, str] = {},
    age_s: float = 0.0,
    submitted: int = 0,
    priority: int = 0,
) -> Callable[[Sequence[Placement]], tuple[Launch, ...]]:
    """Return the function that makes the launches of some placements: with many hosts, those of all
    need much memory, and what they have in common much time.

    Each task gets a secret of its own, made from `secret`, which the chief gets; `secrets` has the
    value of each of training.secrets by its name; `age_s` is the time since the run was first
    started; `submitted` and `priority` are those of a queued run. The function raises PlanError for
    an unknown {field}, this one for more replicas than other hosts, or for more tasks than a
    program can be passed.
    """
    heartbeat = _heartbeat(inventory.training, plan, secret)
    hosts = {host.name: host for host in inventory.hosts}

    def make_some(placements: Sequence[Placement]) -> tuple[Launch, ...]:
        launches = [
            _launch(inventory, plan, p, hosts[p.host], names, heartbeat) for p in placements
        ]
        for each in launches:
            refuse_too_long(each, len(plan.placements))
        common = {
            "secrets": dict(secrets),
            "age_s": age_s,
            "submitted": submitted,
            "priority": priority,
        }
        return tuple(replace(each, **common) for each in launches)

    return make_some


def _heartbeat(training: Training, plan: Plan, secret: str) -> HeartbeatSettings:
    return HeartbeatSettings(
        address=plan.chief.address,
        port=plan.heartbeat_port,
        secret=secret,
        chief=str(plan.chief.task),
        tasks=[str(p.task) for p in plan.placements],
        needed=plan.needed,
        replicas=[str(p.task) for p in replica_placements(training, plan)],
        orphan_timeout_s=training.orphan_timeout_s,
        launch_name=hashlib.sha256(secret.encode()).hexdigest()[:16],
    )


def stragglers_s(training: Training, plan: Plan) -> float | None:
    """Return for how many seconds workers may run after the chief has succeeded; None for no limit.

    Without a ps each worker is a trainer that ends by itself, and may write results afterwards.
    """
    ends_with = training.ends_with or ("chief" if "ps" in plan.cluster else "all")
    if ends_with == "chief" and training.stragglers_s is None:
        return STRAGGLERS_S
    return training.stragglers_s


def replica_placements(training: Training, plan: Plan) -> list[Placement]:
    """Return the tasks whose supervisors keep a copy of the newest checkpoint: one task on each of
    the first hosts besides the chief's. The evaluator's host comes first: it reads its copy."""
    reader = _host_of_remote_evaluator(training, plan)
    hosts = [host for host in plan.hosts if host != plan.chief.host]
    hosts.sort(key=lambda host: host != reader)  # stable: the others keep the plan's order
    if training.replicas > len(hosts):
        raise PlanError(
            f"training.replicas: found {training.replicas}; expected at most {len(hosts)}, "
            "the number of hosts besides the chief's",
            "lower it: a copy on the chief's own host would be lost with it",
        )
    count = max(training.replicas, reader is not None)
    # On the evaluator's host, its own supervisor: that of another task may end earlier.
    return [plan.placements_on(host)[-1 if host == reader else 0] for host in hosts[:count]]


def _host_of_remote_evaluator(training: Training, plan: Plan) -> str | None:
    """Return the evaluator's host if it is not the chief's, and so reads a copy."""
    readers = {p.host for p in plan.evaluators if _links(training, plan, p)}
    return next(iter(readers - {plan.chief.host}), None)


def _links(training: Training, plan: Plan, placement: Placement) -> dict[str, str]:
    """Return the symbolic link through which an evaluator finds the chief's checkpoints at its own
    `checkpoint_dir`. An absolute path has no link: the user has to share it."""
    path = posixpath.normpath(training.checkpoint_dir)
    if placement.task.job != "evaluator" or path == "." or path.startswith("/"):
        return {}
    chief = f"../../{plan.chief.task.file_name}/work/{path}"
    target = chief if placement.host == plan.chief.host else REPLICA
    return {path: posixpath.relpath(target, posixpath.dirname(path) or ".")}


def _launch(
    inventory: Inventory,
    plan: Plan,
    placement: Placement,
    host: Host,
    names: RunNames,
    heartbeat: HeartbeatSettings,
) -> Launch:
    training, job = inventory.training, placement.task.job
    own_heartbeat = heartbeat.of(str(placement.task))
    values = roles.values_of(inventory, plan, placement, names)
    is_at_chief = host.name == plan.chief.host
    ready = frameworks.ready(training, plan, placement)
    meets = ready == RENDEZVOUS and placement.port is not None
    return Launch(
        project=inventory.project,
        run=names.run,
        job=job,
        index=placement.task.index,
        release=names.release,
        argv=[*_argv(training, plan, placement, values), *trials.flags(inventory)],
        env={
            **_env(training, plan, placement, host, values),
            **trials.environment(inventory.trials),
        },
        trials=trials.settings(inventory.trials),
        files={
            place: roles.fill_template(text, values, f"training.role_files.{place}")
            for place, text in training.role_files.items()
        },
        links=_links(training, plan, placement),
        ready=ready,
        master_port=plan.chief.port if meets else None,
        outputs=_outputs(training, plan, placement),
        name=values["task"],
        network=inventory.network,
        notify=_notify(inventory, plan, placement, names),
        port=placement.port,
        gpus=list(placement.gpus),
        gpu_choice=list(placement.gpu_choice),
        checkpoint_dir=training.checkpoint_dir,
        no_proxy=[*plan.addresses],
        ready_timeout_s=training.ready_timeout_s,
        stop_grace_s=training.stop_grace_s,
        linger_s=training.evaluator_grace_s if job == "evaluator" else stragglers_s(training, plan),
        max_duration_s=training.max_duration_s,
        idle_gpu_stop_s=training.idle_gpu_stop_s,
        log_limit_bytes=training.log_limit_mb * MB,
        policy=_policy(inventory.restart, job, alone=len(plan.placements) == 1),
        # A host need not be able to connect to its own address.
        heartbeat=replace(own_heartbeat, address="localhost") if is_at_chief else own_heartbeat,
        data={
            place: names.data[place] for place, each in inventory.data.items() if job in each.jobs
        },
        environment=names.environments.get(host.name, ""),
        gpus_shared=host.gpus_shared,
        exclude_sick=host.exclude_sick,
        address=placement.address,
    )


def _notify(
    inventory: Inventory, plan: Plan, placement: Placement, names: RunNames
) -> Notification:
    is_chief = placement == plan.chief
    return notify(inventory, plan, names.run, names.name) if is_chief else Notification()


def _policy(restart: Restart, job: str, *, alone: bool) -> Policy:
    """Return the restart policy of a job. By default a task without peers is not restarted after
    exit code 1, because it can't have lost a peer: its script is wrong, or done."""
    settings, own = restart.for_job(job), getattr(restart, job)
    is_set = "exits" in own.given | restart.given
    exits = list(settings.exits) if is_set or not alone else [ANY_SIGNAL, *PEER_ERRORS]
    values = {key: getattr(settings, key) for key in settings.key_names()}
    return Policy(**{**values, "exits": exits})


def _outputs(training: Training, plan: Plan, placement: Placement) -> OutputSelection:
    job, is_chief = placement.task.job, placement == plan.chief
    entries = training.outputs_of(job, is_chief=is_chief)
    patterns = [entry for entry in entries if not entry.startswith("/")]
    checkpoints = training.checkpoint_dir if is_chief and entries else ""
    folders = [path for path in (*entries, checkpoints) if path.startswith("/")]
    expressions = gitignore.to_expressions(training.key_path(job, "outputs"), patterns)
    is_copied = training.replicas or _host_of_remote_evaluator(training, plan)
    if not is_chief or not is_copied:
        return OutputSelection(expressions, folders)
    copied_from = "" if training.replicas else posixpath.normpath(training.checkpoint_dir)
    return OutputSelection(expressions, folders, training.outputs_limit_mb * MB, copied_from)


def _argv(
    training: Training, plan: Plan, placement: Placement, values: Mapping[str, str]
) -> list[str]:
    job = placement.task.job
    command, role_args = training.command_and_args(job)
    key = training.key_path(job, "command")
    first, *rest = [roles.fill_template(word, values, key) for word in command]
    if first in frameworks.LAUNCHERS:  # it may be beside the python only, not on the PATH
        first, rest = PYTHON_WORDS[0], ["-m", frameworks.LAUNCHERS[first], *rest]
    program = values["python"] if first in PYTHON_WORDS else first
    key = training.key_path(job, "role_args")
    role_arguments = roles.role_arguments(training, plan, placement) if plan.cluster else ()
    filled_args = [roles.fill_template(word, values, key) for word in role_args]
    return [program, *rest, *role_arguments, *filled_args]


def _env(
    training: Training, plan: Plan, placement: Placement, host: Host, values: Mapping[str, str]
) -> dict[str, str]:
    job = placement.task.job
    env, templates = training.env_and_role_env(job)
    role_env = {
        name: roles.fill_template(
            template, values, f"{training.key_path(job, 'role_env', name)}.{name}"
        )
        for name, template in templates.items()
    }
    return {
        **DEFAULT_ENV,
        **env,
        **host.env,
        **role_env,
        # A slot of trials is no task of a cluster.
        **(roles.role_environment(training, plan, placement) if plan.cluster else {}),
        **_hook_env(training, plan, placement),
        # The host sets it for GPUs that it chooses.
        **({} if placement.gpu_choice else {VISIBLE: visible_devices(placement.gpus)}),
        "TFDEPLOY_RUN": values["run"],
        "TFDEPLOY_RELEASE": values["release"],
        "TFDEPLOY_NAME": values["name"],
    }


def _hook_env(training: Training, plan: Plan, placement: Placement) -> dict[str, str]:
    """Return the variables that enable the hooks of tfdeploy/inside in the training process."""
    trains = placement.task.job in ("worker", "chief")
    return {
        **_checkpoint_device(training, plan, placement),
        **({"TFDEPLOY_END_AT_EXIT": "1"} if trains and "ps" in plan.cluster else {}),
        **({"TFDEPLOY_SAVE_ON_STOP": "1"} if trains and training.save_on_stop else {}),
    }


def _checkpoint_device(training: Training, plan: Plan, placement: Placement) -> dict[str, str]:
    """Return the device on which Saver must run so that checkpoints need no shared file system."""
    on_chief = training.checkpoints_on_chief and "ps" in plan.cluster
    if not on_chief or not placement.task.in_cluster:
        return {}
    chief = roles.script_task(training, plan.chief.task)
    return {"TFDEPLOY_CHECKPOINT_DEVICE": f"/job:{chief.job}/task:{chief.index}/device:CPU:0"}


URL_FIELD = re.compile(r"\{(\w+)\}")
DEFAULT_FILE = "hosts.toml"


def notify(inventory: Inventory, plan: Plan, run: str, name: str) -> records.Notification:
    """Return the order for the chief of the run with this id and name. Raises PlanError if a URL
    has a {NAME} that is not one of training.secrets."""
    file = inventory.file.name
    hosts = "" if file == DEFAULT_FILE else f"--hosts {shlex.quote(file)} "
    return records.Notification(
        on_end=_notify_target(inventory, plan, "on_end"),
        on_failure=_notify_target(inventory, plan, "on_failure"),
        on_slow=_notify_target(inventory, plan, "on_slow"),
        hosts={str(p.task): p.host for p in plan.placements},
        flags=f"{hosts}--run {run}",
        name=name,
    )


def _notify_target(inventory: Inventory, plan: Plan, key: str) -> list[str]:
    """Return a command with the python of the chief's host, or a URL as it is written."""
    first, *rest = getattr(inventory.notify, key) or ("",)
    if records.is_url([first, *rest]):
        _check_fields(inventory, first, key)
    elif first in PYTHON_WORDS:
        first = inventory.host(plan.chief.host).python
    return [first, *rest] if first else []


def _check_fields(inventory: Inventory, url: str, key: str) -> None:
    secrets = inventory.training.secrets
    for name in URL_FIELD.findall(url):
        if name not in secrets:
            raise PlanError(
                f"notify.{key}: unknown field {{{name}}}; expected one of training.secrets",
                f"add it: secrets = {[*secrets, name]} under [training]".replace("'", '"'),
            )
