"""Recognize from a program's text which tasks it needs, and how they are started. Pure."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfdeploy.config.models import Training
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.init import keras
from tfdeploy.init.script_role import find_role, plain_name, top_packages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tfdeploy.init.keras import NeedOfKeras2
    from tfdeploy.init.script_role import ScriptRole
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
KEYS: dict[str, dict[str, object]] = {
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
    which it exits. `keras_2` says why it needs Keras 2, None if it does not. `most_workers` is the
    number of workers that it lists, 0 if it takes any. `reasons` are for the user: what it uses,
    and what follows from it.
    """

    tasks: str
    role: str = "tf_config"
    role_args: tuple[str, ...] = ()
    checkpoint_flag: str = ""
    checkpoint_dir: str = ""
    keys: Mapping[str, object] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    keras_2: NeedOfKeras2 | None = None
    most_workers: int = 0
    reasons: tuple[str, ...] = ()


def recognize(files: Mapping[str, Syntax]) -> Recognized:
    """Return how the program in `files` is distributed: its script comes first, then the modules
    that it imports."""
    role = find_role(files)
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
        keras_2_of(files),
        max((syntax.workers for syntax in files.values()), default=0),
        tuple(reasons),
    )


def uses_parameter_server_strategy(files: Iterable[Syntax]) -> bool:
    """Return whether a program needs a chief that runs the training loop."""
    names = {name for name, tasks in STRATEGIES.items() if tasks == PS_AND_CHIEF}
    return any(names & syntax.names for syntax in files)


def keras_2_of(files: Mapping[str, Syntax]) -> NeedOfKeras2 | None:
    """Return why a program needs Keras 2, None if it does not."""
    return keras.find_need(files, next(filter(None, map(_strategies, files.values())), []))


def _strategies(syntax: Syntax) -> list[str]:
    return [name for name in STRATEGIES if name in syntax.names]


def _find_tasks(files: Mapping[str, Syntax], role: ScriptRole) -> tuple[str, str]:
    """Return the tasks that the program needs, and why."""
    for file, syntax in files.items():
        if KERAS_TUNER & top_packages(syntax):
            return CHIEF_AND_WORKERS, f"{file} uses KerasTuner: {CHIEF_AND_WORKERS}"
        if found := _strategies(syntax):
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


def _flags(files: Mapping[str, Syntax]) -> dict[str, bool]:
    """Return the flags of all files; those of the script first."""
    found: dict[str, bool] = {}
    for syntax in files.values():
        found = {**found, **{f: r for f, r in (syntax.flags or {}).items() if f not in found}}
    return found


def _checkpoint_flag(flags: Iterable[str]) -> str:
    by_name = {plain_name(flag): flag for flag in flags}
    return next((by_name[name] for name in CHECKPOINT_FLAGS if name in by_name), "")


def _checkpoint_dir(files: Iterable[Syntax]) -> str:
    """Return the folder that the program names for its checkpoints, "" if it names none within its
    directory, or the usual one."""
    found = next((posixpath.normpath(s.checkpoint_dir) for s in files if s.checkpoint_dir), "")
    is_outside = found.startswith(("/", "..", "~")) or ":" in found
    return "" if is_outside or found in (".", USUAL_CHECKPOINT_DIR) else found
