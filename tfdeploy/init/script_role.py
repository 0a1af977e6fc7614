"""Recognize from a program's text how it learns its task: by flags, words, variables, or as PyTorch
and JAX do. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdeploy.release.syntax import Syntax

CLUSTER_NAMES = {"ClusterSpec", "Server", "MonitoredTrainingSession", "replica_device_setter"}
JOBS = ("job_name", "job", "job_type", "task_type", "worker_type")
INDEXES = ("task_index", "task_id", "task", "worker_index", "job_index", "index")
PRESET_FLAGS = {"--job_name", "--task_index", "--worker_hosts"}  # of role = "flags"
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


@dataclass(frozen=True)
class ScriptRole:
    """How a program learns its task. `has_ps` is whether it knows the job ps."""

    role: str = "tf_config"
    args: tuple[str, ...] = ()
    flags: frozenset[str] = field(default_factory=frozenset)
    has_ps: bool = False
    reason: str = ""


def find_role(files: Mapping[str, Syntax]) -> ScriptRole:
    """Return how the program learns its task; an empty role if nothing shows it."""
    for file, syntax in files.items():
        role = _role_by_flags(file, syntax) or _role_by_words(file, syntax)
        if role:
            return role
    for file, syntax in files.items():
        role = _role_by_environment(file, syntax) or _role_by_framework(file, syntax)
        if role:
            return role
    return ScriptRole()


def _role_by_flags(file: str, syntax: Syntax) -> ScriptRole | None:
    flags = syntax.flags or {}
    by_hand = not flags and "argv" in syntax.names
    defined = sorted(text for text in syntax.strings if text.startswith("--")) if by_hand else flags
    known = {flag: FIELDS[name] for flag in defined if (name := plain_name(flag)) in FIELDS}
    names = {plain_name(flag) for flag in known}
    if not names & {*INDEXES} or not names - {*INDEXES}:
        return None
    reason = f"{file} {'reads' if by_hand else 'defines'} {_job_and_index(known)}"
    has_ps = bool(names & {"ps_hosts", "num_ps", "num_parameter_servers"}) or "ps" in syntax.strings
    if not by_hand and {*flags} >= PRESET_FLAGS:
        return ScriptRole("flags", (), frozenset(known), has_ps, reason)
    pairs = [[flag, value] if by_hand else [f"{flag}={value}"] for flag, value in known.items()]
    args = tuple(word for pair in pairs for word in pair)
    return ScriptRole("tf_config", args, frozenset(known), has_ps, reason)


def _role_by_words(file: str, syntax: Syntax) -> ScriptRole | None:
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
    return ScriptRole("positional", (), frozenset(), "ps" in syntax.strings, reason)


def _role_by_environment(file: str, syntax: Syntax) -> ScriptRole | None:
    if {"JOB_NAME", "TASK_INDEX"} <= syntax.strings:
        has_ps = bool({"PS_HOSTS", "ps"} & syntax.strings)
        reason = f"{file} reads JOB_NAME and TASK_INDEX from its environment"
        return ScriptRole("environment", (), frozenset(), has_ps, reason)
    if "TF_CONFIG" in syntax.strings or "TFConfigClusterResolver" in syntax.names:
        return ScriptRole(reason=f"{file} reads TF_CONFIG")
    return None


def _role_by_framework(file: str, syntax: Syntax) -> ScriptRole | None:
    """Recognize PyTorch's and JAX's processes, which are numbered."""
    tops = top_packages(syntax)
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
    return ScriptRole(role, *_rank_flags(syntax.flags or {}), has_ps=False, reason=reason)


def top_packages(syntax: Syntax) -> set[str]:
    return {each.top for each in syntax.imports}


def _rank_flags(flags: Mapping[str, bool]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the words for flags of a process's number, and these flags; none if it has not both
    the number and the count."""
    known = {f: RANK_FIELDS[name] for f in flags if (name := plain_name(f)) in RANK_FIELDS}
    names = {plain_name(flag) for flag in known}
    if not (names & {*RANKS} and names & {*RANK_COUNTS}):
        return (), frozenset()
    return tuple(f"{flag}={value}" for flag, value in known.items()), frozenset(known)


def _job_and_index(known: Mapping[str, str]) -> str:
    chosen = [flag for flag, value in known.items() if value in ("{job}", "{index}")]
    return " and ".join(chosen[:2])


def plain_name(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")
