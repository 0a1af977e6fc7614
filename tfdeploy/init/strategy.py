"""Recognize from a program's text how it is distributed, and how it learns its role. Pure."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfdeploy.config.models import Training
from tfdeploy.formatting.hostlist import fold_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfdeploy.release.syntax import Syntax

# Which tasks a program needs.
PS_AND_CHIEF = "ps, workers and a chief"
PS_AND_WORKERS = "ps and workers"
ALL_GPUS_EACH = "workers, each with all GPUs of its host"
WORKERS = "workers"
CHIEF_AND_WORKERS = "workers, and a chief that runs the oracle and no trial"
DATA_SERVICE = "the ps dispatches, workers prepare the input, and the chief trains"
ONE_WITH_ALL_GPUS = "one worker with all GPUs"
ONE = "one worker"
# The keys of [training] that tasks need besides their role, with the table of the chief.
ORACLE = {"KERASTUNER_ORACLE_IP": "{chief_address}", "KERASTUNER_ORACLE_PORT": "{chief_port}"}
KEYS: dict[str, dict[str, Any]] = {
    CHIEF_AND_WORKERS: {
        "ready": "process",
        "role_env": {"KERASTUNER_TUNER_ID": "tuner{index}", **ORACLE},
        "chief": {"ready": "port", "role_env": {"KERASTUNER_TUNER_ID": "chief"}},
    },
    DATA_SERVICE: {"ready": "port", "chief": {"ready": "process"}},
}
# By the name that the program uses; of several in one file, the first counts.
STRATEGIES = {
    "ParameterServerStrategy": PS_AND_CHIEF,
    "ParameterServerStrategyV2": PS_AND_CHIEF,
    "MultiWorkerMirroredStrategy": ALL_GPUS_EACH,
    "CollectiveAllReduceStrategy": ALL_GPUS_EACH,
    "MirroredStrategy": ONE_WITH_ALL_GPUS,
    "CentralStorageStrategy": ONE_WITH_ALL_GPUS,
}
CLUSTER_NAMES = {"ClusterSpec", "Server", "MonitoredTrainingSession", "replica_device_setter"}
JOBS = ("job_name", "job", "job_type", "task_type", "worker_type")
INDEXES = ("task_index", "task_id", "task", "worker_index", "job_index", "index")
# Of PyTorch's and JAX's processes: flags that mean this only together with the other.
RANKS, RANK_COUNTS = ("rank", "process_id", "process_index"), ("world_size", "num_processes")
# What a flag means, by its name with "_": the field of hosts.toml that has its value.
FIELDS = {
    **dict.fromkeys(JOBS, "{job}"),
    **dict.fromkeys(INDEXES, "{index}"),
    **{name: f"{{{name}}}" for name in ("ps_hosts", "worker_hosts", "chief_hosts")},
    **{"num_workers": "{num_workers}", "num_ps": "{num_ps}", "num_parameter_servers": "{num_ps}"},
    **{"grpc_port": "{port}", "worker_grpc_url": "grpc://{address}:{port}"},
}
RANK_FIELDS = {
    **dict.fromkeys(RANKS, "{index}"),
    **dict.fromkeys(RANK_COUNTS, "{num_workers}"),
    **dict.fromkeys(("dist_url", "init_method"), "tcp://{chief_address}:{chief_port}"),
    **dict.fromkeys(("coordinator", "coordinator_address"), "{chief_address}:{chief_port}"),
    **{"master_addr": "{chief_address}", "master_port": "{chief_port}"},
}
LIGHTNING = {"lightning", "pytorch_lightning"}
JOIN_GROUP = {"init_process_group", "init_rpc"}
# What calls init_process_group by itself, by the package that has it.
JOINED_BY = {
    "accelerate": {"Accelerator"},
    "deepspeed": {"initialize", "init_distributed"},
    "transformers": {"Trainer", "Seq2SeqTrainer"},
}
LEGACY_KERAS = "tf_keras"  # the package with Keras 2
NOT_IN_KERAS_3 = {"reset_states", "fit_generator", "evaluate_generator", "predict_generator"}
RECURRENT = {"LSTM", "GRU", "SimpleRNN", "RNN"}  # layers that have reset_states in Keras 3, too
KERAS_TUNER = {"keras_tuner", "kerastuner"}
CHECKPOINT_FLAGS = (
    *("checkpoint_dir", "ckpt_dir", "checkpoints_dir", "checkpoint_directory", "model_dir"),
    *("train_dir", "save_dir", "log_dir", "logdir", "logs_dir", "output_dir", "work_dir"),
)
USUAL_CHECKPOINT_DIR = Training.checkpoint_dir
PLAIN = "no distribution strategy: it trains in one process"


@dataclass(frozen=True)
class Recognized:
    """How a program is distributed: the `tasks` that it needs, and the keys of [training].

    `checkpoint_flag` is the flag for the folder of its checkpoints, `checkpoint_dir` the folder if
    that is fixed; "" if it has none. `keys` are those of KEYS, `required` are further flags without
    which it exits. `keras_2` says why it needs Keras 2, "" if it does not. `most_workers` is the
    number of workers that it lists, 0 if it takes any. `reasons` are for the user: what it uses,
    and what follows from it.
    """

    tasks: str
    role: str = "tf_config"
    role_args: tuple[str, ...] = ()
    checkpoint_flag: str = ""
    checkpoint_dir: str = ""
    keys: Mapping[str, Any] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    keras_2: str = ""
    most_workers: int = 0
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Role:
    """How a program learns its task. `has_ps` is whether it knows the job ps."""

    role: str = "tf_config"
    args: tuple[str, ...] = ()
    flags: frozenset[str] = field(default_factory=frozenset)
    has_ps: bool = False
    reason: str = ""


def recognize(files: Mapping[str, Syntax]) -> Recognized:
    """Return how the program in `files` is distributed: its script comes first, then the modules
    that it imports."""
    role = _find_role(files)
    tasks, reason = _find_tasks(files, role)
    flags = _flags(files)
    checkpoint_flag = _checkpoint_flag(flags)
    used = {*role.flags, checkpoint_flag}
    reasons = [reason, role.reason] if role.reason and role.reason not in reason else [reason]
    return Recognized(
        tasks,
        role.role,
        role.args,
        checkpoint_flag,
        "" if checkpoint_flag else _checkpoint_dir(files.values()),
        KEYS.get(tasks, {}),
        tuple(flag for flag, required in flags.items() if required and flag not in used),
        _keras_2(tasks, files.values()),
        max((syntax.workers for syntax in files.values()), default=0),
        tuple(reasons),
    )


def uses_parameter_server_strategy(files: Iterable[Syntax]) -> bool:
    """Return whether a program needs a chief that runs the training loop."""
    names = {name for name, tasks in STRATEGIES.items() if tasks == PS_AND_CHIEF}
    return any(names & syntax.names for syntax in files)


def _find_tasks(files: Mapping[str, Syntax], role: _Role) -> tuple[str, str]:
    """Return the tasks that the program needs, and why."""
    for file, syntax in files.items():
        if KERAS_TUNER & _packages(syntax):
            return CHIEF_AND_WORKERS, f"{file} uses KerasTuner: {CHIEF_AND_WORKERS}"
        found = [name for name in STRATEGIES if name in syntax.names]
        if found:
            tasks = STRATEGIES[found[0]]
            others = f" (and names {fold_names(found[1:])})" if found[1:] else ""
            return tasks, f"{file} uses {found[0]}{others}: {_consequence(tasks)}"
    server = next((file for file, syntax in files.items() if "DispatchServer" in syntax.names), "")
    if server:
        tasks = DATA_SERVICE if role.reason else f"it reads no role, so {ONE}"
        return DATA_SERVICE if role.reason else ONE, f"{server} starts tf.data's service: {tasks}"
    if role.reason and (role.role != "tf_config" or role.args):
        tasks = PS_AND_WORKERS if role.has_ps else WORKERS
        return tasks, f"{role.reason}: {_consequence(tasks)}"
    if role.reason:
        tasks = _tasks_by_tf_config(files.values())
        return tasks, f"{role.reason}: {_consequence(tasks)}"
    script = next(iter(files), "the script")
    return ONE, f"{script} has {PLAIN}"


def _tasks_by_tf_config(files: Iterable[Syntax]) -> str:
    strings = {text for syntax in files for text in syntax.strings}
    if "ps" not in strings:
        return WORKERS
    return PS_AND_CHIEF if "chief" in strings else PS_AND_WORKERS


def _consequence(tasks: str) -> str:
    if tasks in (WORKERS, ALL_GPUS_EACH):
        return "workers only, worker:0 is the chief"
    if tasks == PS_AND_WORKERS:
        return "ps and workers, worker:0 is the chief"
    if tasks == PS_AND_CHIEF:
        return "ps, workers, and a chief that runs the training loop"
    return tasks


def _find_role(files: Mapping[str, Syntax]) -> _Role:
    """Return how the program learns its task; an empty role if nothing shows it."""
    for file, syntax in files.items():
        role = _role_by_flags(file, syntax) or _role_by_words(file, syntax)
        if role:
            return role
    for file, syntax in files.items():
        role = _role_by_environment(file, syntax) or _role_by_framework(file, syntax)
        if role:
            return role
    return _Role()


def _role_by_framework(file: str, syntax: Syntax) -> _Role | None:
    """Recognize PyTorch's and JAX's processes, which are numbered."""
    tops = _packages(syntax)
    joins = [p for p, names in JOINED_BY.items() if p in tops and names & syntax.names]
    if group := JOIN_GROUP & syntax.names:
        role, reason = "torch", f"{file} calls {min(group)}"
    elif joins:
        role, reason = "torch", f"{file} uses {joins[0]}, which calls init_process_group"
    elif {"RANK", "WORLD_SIZE"} <= syntax.strings:
        role, reason = "torch", f"{file} reads RANK and WORLD_SIZE from its environment"
    elif LIGHTNING & tops and "num_nodes" in syntax.keywords:
        role, reason = "torch", f"{file} gives Lightning's Trainer num_nodes"
    elif "jax" in tops and {"distributed", "initialize"} <= syntax.names:
        role, reason = "jax", f"{file} calls jax.distributed.initialize"
    else:
        return None
    return _Role(role, *_rank_flags(syntax.flags or {}), has_ps=False, reason=reason)


def _packages(syntax: Syntax) -> set[str]:
    return {each.top for each in syntax.imports}


def _rank_flags(flags: Mapping[str, bool]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the words for flags of a process's number, and these flags; none if it has not both
    the number and the count."""
    known = {f: RANK_FIELDS[name] for f in flags if (name := _plain_name(f)) in RANK_FIELDS}
    names = {_plain_name(flag) for flag in known}
    if not (names & {*RANKS} and names & {*RANK_COUNTS}):
        return (), frozenset()
    return tuple(f"{flag}={value}" for flag, value in known.items()), frozenset(known)


def _role_by_flags(file: str, syntax: Syntax) -> _Role | None:
    flags = syntax.flags or {}
    by_hand = not flags and "argv" in syntax.names
    defined = sorted(text for text in syntax.strings if text.startswith("--")) if by_hand else flags
    known = {flag: FIELDS[name] for flag in defined if (name := _plain_name(flag)) in FIELDS}
    names = {_plain_name(flag) for flag in known}
    if not names & {*INDEXES} or not names - {*INDEXES}:
        return None
    reason = f"{file} {'reads' if by_hand else 'defines'} {_job_and_index(known)}"
    has_ps = bool(names & {"ps_hosts", "num_ps", "num_parameter_servers"}) or "ps" in syntax.strings
    preset = None if by_hand else _preset(flags)
    if preset:
        return _Role(preset, (), frozenset(known), has_ps, reason)
    pairs = [[flag, value] if by_hand else [f"{flag}={value}"] for flag, value in known.items()]
    args = tuple(word for pair in pairs for word in pair)
    return _Role("tf_config", args, frozenset(known), has_ps, reason)


def _plain_name(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _job_and_index(known: Mapping[str, str]) -> str:
    chosen = [flag for flag, value in known.items() if value in ("{job}", "{index}")]
    return " and ".join(chosen[:2])


def _preset(flags: Mapping[str, bool]) -> str | None:
    """Return the preset of `role` that gives exactly these flags."""
    for role, flag in (("flags", "--{}_{}"), ("dashed", "--{}-{}")):
        own = {flag.format("job", "name"), flag.format("task", "index")}
        if own <= {*flags} and flag.format("worker", "hosts") in flags:
            return role
    return None


def _role_by_words(file: str, syntax: Syntax) -> _Role | None:
    """Recognize a job and an index as two words, with or without argparse."""
    if len(syntax.positionals) == 2:
        named = syntax.positionals[0] in JOBS and syntax.positionals[1] in INDEXES
    else:
        uses_cluster = bool(syntax.names & CLUSTER_NAMES)
        named = uses_cluster or bool(syntax.names & {*JOBS} and syntax.names & {*INDEXES})
        named = named and syntax.argv_words == 2
    if not named:
        return None
    reason = f"{file} takes its job and its index as two words"
    return _Role("positional", (), frozenset(), "ps" in syntax.strings, reason)


def _role_by_environment(file: str, syntax: Syntax) -> _Role | None:
    if {"JOB_NAME", "TASK_INDEX"} <= syntax.strings:
        has_ps = bool({"PS_HOSTS", "ps"} & syntax.strings)
        reason = f"{file} reads JOB_NAME and TASK_INDEX from its environment"
        return _Role("environment", (), frozenset(), has_ps, reason)
    if "TF_CONFIG" in syntax.strings or "TFConfigClusterResolver" in syntax.names:
        return _Role(reason=f"{file} reads TF_CONFIG")
    return None


def _flags(files: Mapping[str, Syntax]) -> dict[str, bool]:
    """Return the flags of all files; those of the script first."""
    found: dict[str, bool] = {}
    for syntax in files.values():
        found = {**found, **{f: r for f, r in (syntax.flags or {}).items() if f not in found}}
    return found


def _checkpoint_flag(flags: Iterable[str]) -> str:
    by_name = {_plain_name(flag): flag for flag in flags}
    return next((by_name[name] for name in CHECKPOINT_FLAGS if name in by_name), "")


def _checkpoint_dir(files: Iterable[Syntax]) -> str:
    """Return the folder that the program names for its checkpoints, "" if it names none within its
    directory, or the usual one."""
    found = next((posixpath.normpath(s.checkpoint_dir) for s in files if s.checkpoint_dir), "")
    is_outside = found.startswith(("/", "..", "~")) or ":" in found
    return "" if is_outside or found in (".", USUAL_CHECKPOINT_DIR) else found


def _keras_2(tasks: str, files: Iterable[Syntax]) -> str:
    """Return why the program needs Keras 2, "" if it does not."""
    names = {name for syntax in files for name in syntax.names}
    if "keras" not in names:
        return ""
    if "fit" in names and tasks in (PS_AND_CHIEF, ALL_GPUS_EACH):
        return "fit of Keras 3 fails under this strategy"
    removed = names & NOT_IN_KERAS_3 if not names & RECURRENT else ()
    return f"Keras 3 has no {min(removed)}" if removed else ""
