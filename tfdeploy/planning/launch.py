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
    Directory,
    Endpoint,
    Gpus,
    HeartbeatSettings,
    Launch,
    Limits,
    Notification,
    OutputSelection,
    Policy,
    Process,
    QueuePlace,
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
NO_TURN = QueuePlace()


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
    turn: QueuePlace = NO_TURN,
) -> Callable[[Sequence[Placement]], tuple[Launch, ...]]:
    """Return the function that makes the launches of some placements: with many hosts, those of all
    need much memory, and what they have in common much time.

    Each task gets a secret of its own, made from `secret`, which the chief gets; `secrets` has the
    value of each of training.secrets by its name; `age_s` is the time since the run was first
    started; `turn` is that of a queued run. The function raises PlanError for an unknown {field},
    this one for more replicas than other hosts, or for more tasks than a program can be passed.
    """
    heartbeat = _heartbeat(inventory.training, plan, secret)
    hosts = {host.name: host for host in inventory.hosts}

    def make_some(placements: Sequence[Placement]) -> tuple[Launch, ...]:
        return tuple(map(make_one, placements))

    def make_one(placement: Placement) -> Launch:
        training, host = inventory.training, hosts[placement.host]
        values = roles.values_of(inventory, plan, placement, names)
        notification = Notification()
        if placement == plan.chief and inventory.notify.given:
            notification = notify(inventory, plan, names.run, names.name)
        launch = Launch(
            project=inventory.project,
            run=names.run,
            task=str(placement.task),
            process=_process(inventory, plan, placement, names, values, secrets),
            directory=_directory(inventory, plan, placement, names, values),
            endpoint=_endpoint(inventory, plan, placement, values["task"]),
            gpus=_gpus(host, placement),
            limits=_limits(training, plan, placement, age_s),
            policy=_policy(inventory.restart, placement.task.job, alone=len(plan.placements) == 1),
            heartbeat=_own_heartbeat(heartbeat, plan, placement),
            outputs=_outputs(training, plan, placement),
            notify=notification,
            turn=turn,
        )
        if inventory.trials.points:
            launch = trials.in_slot(launch, inventory)
        refuse_too_long(launch, len(plan.placements))
        return launch

    return make_some


def _heartbeat(training: Training, plan: Plan, secret: str) -> HeartbeatSettings:
    has_copies = training.replicas or plan.evaluators
    copies = replica_placements(training, plan) if has_copies else []
    return HeartbeatSettings(
        address=plan.chief.address,
        port=plan.heartbeat_port,
        secret=secret,
        chief=str(plan.chief.task),
        tasks=[str(p.task) for p in plan.placements],
        needed=plan.needed,
        replicas=[str(p.task) for p in copies],
        orphan_timeout_s=training.orphan_timeout_s,
        launch_name=hashlib.sha256(secret.encode()).hexdigest()[:16],
    )


def stragglers_s(training: Training, plan: Plan) -> float | None:
    """Return for how many seconds workers may run after the chief has succeeded; None for no limit.

    Without a ps each worker is a trainer that ends by itself, and may write results afterwards.
    """
    ends_with = training.ends_with or ("chief" if "ps" in plan.cluster else "all")
    return STRAGGLERS_S if ends_with == "chief" else None


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
    if path == "." or path.startswith("/"):
        return {}
    chief = f"../../{plan.chief.task.file_name}/work/{path}"
    target = chief if placement.host == plan.chief.host else REPLICA
    return {path: posixpath.relpath(target, posixpath.dirname(path) or ".")}


def _process(
    inventory: Inventory,
    plan: Plan,
    placement: Placement,
    names: RunNames,
    values: Mapping[str, str],
    secrets: Mapping[str, str],
) -> Process:
    training = inventory.training
    env = _env(training, plan, placement, inventory.host(placement.host), values)
    return Process(
        argv=_argv(training, plan, placement, values),
        env=env,
        secrets=dict(secrets),
        environment=names.environments.get(placement.host, ""),
    )


def _directory(
    inventory: Inventory,
    plan: Plan,
    placement: Placement,
    names: RunNames,
    values: Mapping[str, str],
) -> Directory:
    training, job = inventory.training, placement.task.job
    return Directory(
        release=names.release,
        checkpoint_dir=training.checkpoint_dir,
        data={
            place: names.data[place] for place, each in inventory.data.items() if job in each.jobs
        },
        files={
            place: roles.fill_template(text, values, f"training.role_files.{place}")
            for place, text in training.role_files.items()
        },
        links=_links(training, plan, placement) if job == "evaluator" else {},
    )


def _endpoint(inventory: Inventory, plan: Plan, placement: Placement, name: str) -> Endpoint:
    ready = frameworks.ready(inventory.training, plan, placement)
    meets = ready == RENDEZVOUS and placement.port is not None
    return Endpoint(
        port=placement.port,
        no_proxy=[*plan.addresses],
        address=placement.address,
        name=name,
        ready=ready,
        master_port=plan.chief.port if meets else None,
        network=inventory.network,
    )


def _gpus(host: Host, placement: Placement) -> Gpus:
    return Gpus(
        indexes=list(placement.gpus),
        choice=list(placement.gpu_choice),
        shared=host.gpus_shared,
        exclude_sick=host.exclude_sick,
    )


def _limits(training: Training, plan: Plan, placement: Placement, age_s: float) -> Limits:
    evaluates = placement.task.job == "evaluator"
    return Limits(
        ready_timeout_s=training.ready_timeout_s,
        stop_grace_s=training.stop_grace_s,
        linger_s=training.evaluator_grace_s if evaluates else stragglers_s(training, plan),
        max_duration_s=training.max_duration_s,
        idle_gpu_stop_s=training.idle_gpu_stop_s,
        age_s=age_s,
    )


def _own_heartbeat(
    heartbeat: HeartbeatSettings, plan: Plan, placement: Placement
) -> HeartbeatSettings:
    own = heartbeat.of(str(placement.task))
    # A host need not be able to connect to its own address.
    is_at_chief = placement.host == plan.chief.host
    return replace(own, address="localhost") if is_at_chief else own


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
    is_read = bool(plan.evaluators) and _host_of_remote_evaluator(training, plan) is not None
    if not is_chief or not (training.replicas or is_read):
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
    trains, has_ps = placement.task.job in ("worker", "chief"), "ps" in plan.cluster
    return {
        **(_checkpoint_device(training, plan, placement) if has_ps else {}),
        **({"TFDEPLOY_END_AT_EXIT": "1"} if trains and has_ps else {}),
        **({"TFDEPLOY_SAVE_ON_STOP": "1"} if trains and training.save_on_stop else {}),
    }


def _checkpoint_device(training: Training, plan: Plan, placement: Placement) -> dict[str, str]:
    """Return the device on which Saver must run so that checkpoints need no shared file system."""
    if not training.checkpoints_on_chief or not placement.task.in_cluster:
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
