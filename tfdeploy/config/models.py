"""The tables of hosts.toml: their keys, types and defaults. `schema.py` validates by them what a
user wrote; a run's record is read without that, and without Pydantic.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from tfdeploy.config import ANY_SIGNAL, AUTO_PORTS, PER_GPU
from tfdeploy.config.cluster import JOBS
from tfdeploy.formatting.hostlist import fold_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Set

    from pydantic import Field

    from tfdeploy.config.types import (
        Address,
        CheckpointDir,
        Command,
        Count,
        DataPlace,
        Directory,
        EndsWith,
        Environment,
        Exits,
        GpuIds,
        JobName,
        Jobs,
        Jump,
        LocalPath,
        Modules,
        Name,
        Objective,
        Outputs,
        Params,
        Place,
        PlainWord,
        Points,
        Port,
        Ports,
        PythonVersion,
        Ready,
        Requirements,
        Role,
        Seconds,
        Setup,
        StringList,
        Target,
        Text,
        Timeout,
        User,
        Variables,
        Words,
        Workers,
    )

SMALL_OUTPUTS_MB = 64  # of a task of which nobody asked for files: metrics, tables, small models


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of hosts.toml. `given` are the keys that it has, or that were set since; the others
    have their defaults."""

    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    TABLES: ClassVar[Mapping[str, type[Table]]] = {}  # the class of each key that is a table

    @classmethod
    def key_names(cls) -> tuple[str, ...]:
        """Return the keys that the table may have."""
        return tuple(each.name for each in fields(cls) if each.name != "given")

    def check(self) -> None:
        """Raise ValueError if two of the table's keys contradict each other."""

    def copy_with(self, changes: Mapping[str, Any]) -> Self:
        """Return a copy with these values, which are not checked."""
        return replace(self, given=self.given | changes.keys(), **changes)

    def to_values(self, exclude: Set[str] = frozenset()) -> dict[str, Any]:
        """Return the keys that the table has, as JSON can store them."""
        wanted = (key for key in self.key_names() if key in self.given - exclude)
        return {key: _to_value(getattr(self, key)) for key in wanted}

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Self:
        """Return the table of what `to_values` returned. Nothing is checked."""
        read = {key: _from_value(value, cls.TABLES.get(key)) for key, value in values.items()}
        return cls(given=frozenset(values), **read)


def _to_value(value: Any) -> Any:
    if isinstance(value, Table):
        return value.to_values()
    if isinstance(value, dict):
        return {key: _to_value(item) for key, item in value.items()}
    if isinstance(value, range):  # a number of GPUs
        return len(value)
    return list(value) if isinstance(value, tuple) else value


def _from_value(value: Any, table: type[Table] | None) -> Any:
    if table is DataSet:
        return {place: DataSet.from_values(each) for place, each in value.items()}
    if table:
        return table.from_values(value)
    return tuple(value) if isinstance(value, list) else value


# The folder of the roots of hosts with `shared_fs`; agent/paths.py has the same name.
OWN_ROOTS = ".hosts"
SSH_KEYS = ("hostname", "user", "port", "identity_file", "proxy_jump")


@dataclass(frozen=True, kw_only=True)
class Source(Table):
    """The source that tfdeploy pushes.

    `path` is relative to hosts.toml; `exclude` has patterns as in .gitignore. With `relay` the
    controller sends a large release to one host, and the hosts send it to each other.
    """

    path: LocalPath = "."
    exclude: StringList = ()
    relay: bool = True


@dataclass(frozen=True, kw_only=True)
class DataSet(Table):
    """A folder of data that tasks read; its table's name is its place in the task's directory.

    `path` is relative to hosts.toml; None means the same place below the source. `compare` decides
    whether a file has changed: "mtime" by its size and time, "hash" by reading it on the
    controller.
    """

    path: LocalPath | None = None
    jobs: Jobs = ("worker", "chief", "evaluator")
    compare: Literal["mtime", "hash"] = "mtime"
    exclude: StringList = ()


@dataclass(frozen=True, kw_only=True)
class PythonEnvironment(Table):
    """[env]: the Python environment that `push` builds on every host.

    `requirements` are packages, or a file of them, relative to hosts.toml; `python` is a version,
    None for the host's own; `setup` are shell commands that run after the installation.
    """

    requirements: Requirements = ()
    python: PythonVersion | None = None
    setup: Setup = ()


@dataclass(frozen=True, kw_only=True)
class JobTraining(Table):
    """[training.worker] and the like: keys for one job that override those of [training].

    `name` is the job's name in scripts.
    """

    name: JobName | None = None
    command: Command | None = None
    role_args: Words | None = None
    role_env: Environment = field(default_factory=dict)
    env: Environment = field(default_factory=dict)
    ready: Ready | None = None
    outputs: Outputs | None = None


@dataclass(frozen=True, kw_only=True)
class Training(Table):
    """[training]: the command of every task, how it learns its role, when it is READY, where the
    chief saves checkpoints, and which files tfdeploy collects.

    `outputs_limit_mb` is the chief's limit, and that of a job with its own `outputs`. `secrets` are
    names of variables whose values `start` takes from its own environment. `imports` are the
    modules that `check` imports on every host; if they are not set, `plan_all` reads them off the
    scripts.
    """

    TABLES: ClassVar[Mapping[str, type[Table]]] = dict.fromkeys(JOBS, JobTraining)

    command: Command
    imports: Modules = ("tensorflow",)
    role: Role = "tf_config"
    role_args: Words = ()
    role_env: Environment = field(default_factory=dict)
    role_files: dict[Place, Text] = field(default_factory=dict)
    env: Environment = field(default_factory=dict)
    secrets: Variables = ()
    ready: Ready | None = None
    ps: JobTraining = JobTraining()
    worker: JobTraining = JobTraining()
    chief: JobTraining = JobTraining()
    evaluator: JobTraining = JobTraining()
    checkpoint_dir: CheckpointDir = "checkpoints"
    outputs: Outputs = ("*",)
    outputs_limit_mb: Annotated[int, Field(ge=0)] = 1024
    checkpoints_on_chief: bool = True
    save_on_stop: bool = False
    replicas: Annotated[Count, Field(le=8)] = 0
    ready_timeout_s: Timeout = 180.0
    stop_grace_s: Seconds = 10.0
    ends_with: EndsWith | None = None
    evaluator_grace_s: Seconds = 120.0
    max_duration_s: Timeout | None = None
    idle_gpu_stop_s: Timeout | None = None
    orphan_timeout_s: Annotated[Timeout, Field(ge=10)] = 1800.0
    versions: Literal["same", "any"] = "same"
    workers: Annotated[Count, Field(ge=1)] | None = None

    def job_name(self, job: str) -> str:
        """Return the name that scripts, and so TensorFlow, use for the job."""
        own: JobTraining = getattr(self, job)
        return own.name or job

    @property
    def uses_tensorflow(self) -> bool:
        return any(module.partition(".")[0] == "tensorflow" for module in self.imports)

    def command_and_args(self, job: str) -> tuple[Command, Words]:
        """Return the command of a job's tasks, and the arguments after those of its role."""
        own: JobTraining = getattr(self, job)
        command = self.command if own.command is None else own.command
        return command, self.role_args if own.role_args is None else own.role_args

    def env_and_role_env(self, job: str) -> tuple[Environment, Environment]:
        """Return the environment of a job's tasks, and the templates of its `role_env`."""
        own: JobTraining = getattr(self, job)
        return {**self.env, **own.env}, {**self.role_env, **own.role_env}

    def outputs_of(self, job: str, *, is_chief: bool) -> Outputs:
        """Return the `outputs` of a job's tasks: by default the chief's, without its folders
        outside of its own directory."""
        own: JobTraining = getattr(self, job)
        if own.outputs is not None:
            return own.outputs
        return tuple(each for each in self.outputs if is_chief or not each.startswith("/"))

    def outputs_limit_mb_of(self, job: str, *, is_chief: bool) -> int:
        """Return how many MB of `outputs` are fetched of each task of a job: of tasks of which
        nobody asked for files, only what is small."""
        own: JobTraining = getattr(self, job)
        if is_chief or own.outputs is not None:
            return self.outputs_limit_mb
        return min(self.outputs_limit_mb, SMALL_OUTPUTS_MB)

    def key_path(self, job: str, key: str, name: str = "") -> str:
        """Return the path in hosts.toml of the `key` that applies to a job; `name` is an entry of
        `key`, if that is a table."""
        own = getattr(getattr(self, job), key)
        is_overridden = name in own if name else own is not None
        return f"training.{job}.{key}" if is_overridden else f"training.{key}"

    def check(self) -> None:
        """Raise ValueError if two jobs have one name."""
        job_by_name: dict[str, str] = {}
        for job in JOBS:
            first = job_by_name.setdefault(self.job_name(job), job)
            if first != job:
                raise ValueError(
                    f'{first} and {job} have the same name "{self.job_name(job)}"; '
                    "expected a different one for each job"
                )


@dataclass(frozen=True, kw_only=True)
class RestartSettings(Table):
    """When the supervisor restarts a task that exited, and when it ends one that hangs."""

    attempts: Count = 10
    delay_s: Seconds = 1.0
    exits: Exits = (1, ANY_SIGNAL)
    frozen_timeout_s: Timeout = 20.0
    stall_timeout_s: Timeout | None = None


@dataclass(frozen=True, kw_only=True)
class Restart(RestartSettings):
    """[restart] for every job; [restart.worker] and the like override it for one job."""

    TABLES: ClassVar[Mapping[str, type[Table]]] = dict.fromkeys(JOBS, RestartSettings)

    ps: RestartSettings = RestartSettings()
    worker: RestartSettings = RestartSettings()
    chief: RestartSettings = RestartSettings()
    evaluator: RestartSettings = RestartSettings()

    def for_job(self, job: str) -> RestartSettings:
        """Return the settings of one job. The `stall_timeout_s` of [restart] does not apply to a
        ps, which has no steps."""
        own: RestartSettings = getattr(self, job)
        general = {name: getattr(self, name) for name in RestartSettings.key_names()}
        if job == "ps":
            general["stall_timeout_s"] = None
        return replace(own, **{name: general[name] for name in general.keys() - own.given})


@dataclass(frozen=True, kw_only=True)
class Notify(Table):
    """What the chief's host does once at the end of the run: a command that gets the run's summary
    as JSON, or a URL. `on_failure` is only for a run that failed, `on_slow` for what is slower
    than the rest of a run that trains."""

    on_end: Target | None = None
    on_failure: Target | None = None
    on_slow: Target | None = None


@dataclass(frozen=True, kw_only=True)
class Trials(Table):
    """[trials]: trainings with other parameters, which `tfdeploy trials` runs one after the other
    in the slots of the hosts.

    `params` has for each parameter a list of values, or a range {"from", "to", "log"}. `random`
    draws that number of combinations with `seed`; None means all of them. A trial whose host or
    process is lost is tried `attempts` times.
    `points` are the combinations themselves, made of these keys: with them, a run has trials.
    """

    params: Params = field(default_factory=dict)
    random: Annotated[int, Field(ge=1, le=10000)] | None = None
    repeat: Annotated[Count, Field(ge=1)] = 1
    seed: Annotated[int, Field(ge=0)] = 0
    objective: Objective | None = None
    stop_bad: bool = False
    attempts: Annotated[Count, Field(ge=1)] = 2
    slots_per_host: Annotated[Count, Field(ge=1)] | None = None
    points: Points = ()

    @property
    def goal(self) -> tuple[str, str]:
        """Return the scalar of the objective, "" for none, and "min" or "max"."""
        name, _, mode = (self.objective or ":max").rpartition(":")
        return name, mode

    def check(self) -> None:
        """Raise ValueError if bad trials can't be recognized, or points have other parameters."""
        if self.stop_bad and not self.objective:
            raise ValueError('stop_bad needs an objective, such as objective = "val_accuracy:max"')
        if len({frozenset(point) for point in self.points}) > 1:
            raise ValueError("points: expected the same parameters in each of them")


@dataclass(frozen=True, kw_only=True)
class HostSettings(Table):
    """The keys that both [defaults] and a host may have."""

    transport: Literal["ssh", "fabric", "openssh", "local"] = "ssh"
    user: User | None = None
    port: Port | None = None
    identity_file: LocalPath | None = None
    proxy_jump: Jump | None = None
    gpus: GpuIds = ()
    gpus_shared: bool = False
    exclude_sick: bool = False
    gpus_per_worker: Count | None = None
    gpus_per_chief: Count | None = None
    ps: Count = 0
    workers: Workers = 0
    ports: Ports = tuple(range(2222, 2300))
    python: PlainWord = "python3"
    directory: Directory = "~/.tfdeploy"
    shared_fs: bool = False
    env: Environment = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Host(HostSettings):
    """One machine: its SSH settings, the address its peers connect to, its GPUs and its tasks."""

    name: Name
    hostname: Address | None = None
    address: Address | None = None
    chief: bool = False
    evaluator: bool = False
    spare: bool = False

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Self:
        gpus = values.get("gpus")
        count = {"gpus": range(gpus)} if isinstance(gpus, int) else {}
        return super().from_values({**values, **count})

    @property
    def is_local(self) -> bool:
        """Return whether it is the controller itself."""
        return self.transport == "local"

    @property
    def uses_ssh(self) -> bool:
        """Return whether SSH reaches it: then SSH's keys and configuration apply, and rsync."""
        return not self.is_local

    @property
    def machine(self) -> str:
        """Return what is equal for two hosts of hosts.toml that are one machine."""
        if self.uses_ssh:
            return f"{(self.hostname or self.name).lower()} port {self.port or 22}"
        return f'transport = "{self.transport}"'

    @property
    def store(self) -> str:
        """Return the folder of the host's releases and environments: `directory` with the host's
        name for `{host}`. With `shared_fs` it is that of all hosts with the same `directory`."""
        return self.directory.replace("{host}", self.name)

    @property
    def root(self) -> str:
        """Return the folder of the host's agent and runs, which it shares with no other host."""
        return f"{self.store.rstrip('/')}/{OWN_ROOTS}/{self.name}" if self.shared_fs else self.store

    def to_toml(self) -> dict[str, Any]:
        """Return the keys of the host's table in hosts.toml, which has its name."""
        values = self.to_values({"name"})
        if values.get("workers") == PER_GPU:
            values["workers"] = "per-gpu"
        if self.ports == AUTO_PORTS:
            values["ports"] = "auto"
        return values

    def task_python(self, project: str, environment: str) -> str:
        """Return the python that runs the tasks: that of an environment of the project (see
        agent/paths.py), or without one ("") the host's."""
        if not environment:
            return self.python
        return f"{self.store.rstrip('/')}/{project}/envs/{environment}/bin/python"

    def check(self) -> None:
        """Raise ValueError for a folder of its own on a shared file system, and for SSH's keys
        without SSH."""
        if self.shared_fs and "{host}" in self.directory:
            raise ValueError(
                f'directory = "{self.directory}" gives each host its own folder, and shared_fs = '
                "true all hosts the same one; remove {host} or shared_fs"
            )
        ssh_keys = [key for key in SSH_KEYS if getattr(self, key) is not None]
        if not self.uses_ssh and ssh_keys:
            raise ValueError(
                f'{ssh_keys[0]} is for SSH, which transport = "{self.transport}" does not use; '
                f"remove {ssh_keys[0]}"
            )


@dataclass(frozen=True, kw_only=True)
class FileFields(Table):
    """The keys and tables of hosts.toml, without its hosts."""

    TABLES: ClassVar[Mapping[str, type[Table]]] = {
        "source": Source, "env": PythonEnvironment, "training": Training, "restart": Restart,
        "notify": Notify, "trials": Trials, "data": DataSet,
    }  # fmt: skip

    project: Name
    ssh_config: LocalPath | None = None
    keep_connections_s: Seconds = 300.0
    network: Literal["guarded", "strict", "open"] = "guarded"
    source: Source = Source()
    data: dict[DataPlace, DataSet] = field(default_factory=dict)
    env: PythonEnvironment | None = None
    training: Training
    restart: Restart = Restart()
    notify: Notify = Notify()
    trials: Trials = Trials()


@dataclass(frozen=True, kw_only=True, repr=False)
class Inventory(FileFields):
    """A validated hosts.toml. Relative paths in it start at the folder of `file`."""

    file: Path
    hosts: tuple[Host, ...]

    def __repr__(self) -> str:
        """Return what a notebook shows."""
        hosts = fold_names(host.name for host in self.hosts)
        name = type(self).__name__
        return f"{name}(project={self.project!r}, file={str(self.file)!r}, hosts={hosts!r})"

    @property
    def source_root(self) -> Path:
        return self.absolute(self.source.path).resolve()

    def data_root(self, place: str) -> Path:
        """Return the folder of a data set on the controller; symbolic links are not resolved."""
        path = self.data[place].path
        if path is None:
            return self.source_root / place
        return self.absolute(path)

    def absolute(self, path: str) -> Path:
        """Return a path of hosts.toml as an absolute one; a relative path starts at its folder."""
        return (self.file.parent / Path(path).expanduser()).absolute()

    def host(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    def to_toml(self) -> dict[str, Any]:
        """Return the table of a hosts.toml, with [defaults] merged into each host."""
        hosts = {host.name: host.to_toml() for host in self.hosts}
        return {**self.to_values({"file", "hosts"}), "hosts": hosts}

    def to_record(self) -> dict[str, Any]:
        """Return the keys that are set, those of each host with [defaults], as JSON can store
        them."""
        hosts = [host.to_values() for host in self.hosts]
        return {**self.to_values({"file", "hosts"}), "hosts": hosts}

    @classmethod
    def from_record(cls, record: Mapping[str, Any], file: Path) -> Self:
        """Return the inventory of what `to_record` returned; relative paths start at the folder of
        `file`. Nothing is checked."""
        hosts = tuple(Host.from_values(each) for each in record["hosts"])
        return cls.from_values({**record, "hosts": hosts, "file": file})


@dataclass(frozen=True, kw_only=True)
class HostsFile(FileFields):
    """The file as it is written: a table for each host, [defaults] not yet merged into them."""

    defaults: HostSettings = HostSettings()
    hosts: Annotated[dict[str, dict[str, Any]], Field(min_length=1)]
