"""The tables of hosts.toml, key by key: what may stand in them, and what holds by default."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tfdeploy.cluster import JOBS
from tfdeploy.fields import (
    ANY_SIGNAL,
    Address,
    CheckpointDir,
    Command,
    Count,
    Directory,
    Environment,
    Exits,
    GpuIds,
    JobName,
    Jobs,
    Name,
    Place,
    Port,
    Ports,
    Ready,
    Role,
    Seconds,
    Timeout,
    Word,
    Words,
    Workers,
)


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


SSH_KEYS = ("hostname", "user", "port", "identity_file", "proxy_jump")


class Source(Table):
    """What is pushed. `path` is relative to hosts.toml; `exclude` has .gitignore's patterns. With
    `relay` many bytes go once from home, and then from host to host."""

    path: str = "."
    exclude: Words = ()
    relay: bool = True


class DataSet(Table):
    """What tasks read beside the code; its table's name is where they see it. `path` is relative to
    hosts.toml, None for the same place below the source. With `compare` "mtime" a file is the same
    if its size and its time are; "hash" reads every byte at home."""

    path: str | None = None
    jobs: Jobs = ("worker", "chief", "evaluator")
    compare: Literal["mtime", "hash"] = "mtime"
    exclude: Words = ()


class JobTraining(Table):
    """What holds for the tasks of one job, over [training]. `name` is what scripts call the job."""

    name: JobName | None = None
    command: Command | None = None
    role_args: Words | None = None
    role_env: Environment = {}
    env: Environment = {}


class Training(Table):
    """What every task runs, how it is told its role, when it is READY, and where the chief saves.
    [training.worker] and the like hold for one job, over it."""

    command: Command
    role: Role = "tf_config"
    role_args: Words = ()
    role_env: Environment = {}
    role_files: dict[Place, str] = {}
    env: Environment = {}
    ready: Ready | None = None
    ps: JobTraining = JobTraining()
    worker: JobTraining = JobTraining()
    chief: JobTraining = JobTraining()
    evaluator: JobTraining = JobTraining()
    checkpoint_dir: CheckpointDir = "checkpoints"
    checkpoints_on_chief: bool = True
    save_on_stop: bool = False
    replicas: Annotated[Count, Field(le=8)] = 0
    ready_timeout_s: Timeout = 180.0
    stop_grace_s: Seconds = 10.0
    evaluator_grace_s: Seconds = 120.0
    max_duration_s: Timeout | None = None
    orphan_timeout_s: Annotated[Timeout, Field(ge=10)] = 1800.0
    log_limit_mb: Annotated[int, Field(ge=1)] = 100

    def named(self, job: str) -> str:
        """What scripts call the job, and TensorFlow with them."""
        own: JobTraining = getattr(self, job)
        return own.name or job

    def words(self, job: str) -> tuple[Command, Words]:
        """The command of a job's tasks, and the words behind its role."""
        own: JobTraining = getattr(self, job)
        command = self.command if own.command is None else own.command
        return command, self.role_args if own.role_args is None else own.role_args

    def variables(self, job: str) -> tuple[Environment, Environment]:
        """The environment of a job's tasks, and the templates of what tells their role."""
        own: JobTraining = getattr(self, job)
        return {**self.env, **own.env}, {**self.role_env, **own.role_env}

    def key(self, job: str, key: str, name: str = "") -> str:
        """Where hosts.toml says what a job has for `key`, or for a `name` in that table."""
        own = getattr(getattr(self, job), key)
        its_own = name in own if name else own is not None
        return f"training.{job}.{key}" if its_own else f"training.{key}"

    @model_validator(mode="after")
    def _one_name_a_job(self) -> Self:
        seen: dict[str, str] = {}
        for job in JOBS:
            first = seen.setdefault(self.named(job), job)
            if first != job:
                raise ValueError(f'{first} and {job} would both be called "{self.named(job)}"')
        return self


class RestartSettings(Table):
    """When a task is begun again, and when it is ended for that."""

    attempts: Count = 10
    window_s: Timeout = 3600.0
    delay_s: Seconds = 1.0
    max_delay_s: Seconds = 60.0
    exits: Exits = (1, ANY_SIGNAL)
    frozen_timeout_s: Timeout = 20.0
    stall_timeout_s: Timeout | None = None


class Restart(RestartSettings):
    """[restart] holds for every job, [restart.worker] and the like for one, over it."""

    ps: RestartSettings = RestartSettings()
    worker: RestartSettings = RestartSettings()
    chief: RestartSettings = RestartSettings()
    evaluator: RestartSettings = RestartSettings()

    def of(self, job: str) -> RestartSettings:
        """What holds for one job. A ps is never called stalled by [restart]: it has no steps."""
        own: RestartSettings = getattr(self, job)
        general = {name: getattr(self, name) for name in RestartSettings.model_fields}
        if job == "ps":
            general["stall_timeout_s"] = None
        return own.model_copy(
            update={name: general[name] for name in general if name not in own.model_fields_set}
        )


class HostSettings(Table):
    """What [defaults] may say for every host, and a host for itself."""

    transport: Literal["ssh", "local"] = "ssh"
    user: Word | None = None
    port: Port | None = None
    identity_file: str | None = None
    proxy_jump: Word | None = None
    gpus: GpuIds = ()
    gpus_per_worker: Count | None = None
    gpus_per_chief: Count | None = None
    ps: Count = 0
    workers: Workers = 0
    ports: Ports = tuple(range(2222, 2300))
    python: Word = "python3"
    directory: Directory = "~/.tfdeploy"
    env: Environment = {}


class Host(HostSettings):
    """One machine: its SSH identity, the address that its peers dial, its GPUs and its tasks."""

    name: Name
    hostname: Address | None = None
    address: Address | None = None
    chief: bool = False
    evaluator: bool = False
    spare: bool = False

    @property
    def is_local(self) -> bool:
        return self.transport == "local"

    @property
    def root(self) -> str:
        """Its `directory`; hosts that see one file system are told apart there by `{host}`."""
        return self.directory.replace("{host}", self.name)

    @model_validator(mode="after")
    def _local_needs_no_ssh(self) -> Self:
        set_here = [key for key in SSH_KEYS if getattr(self, key) is not None]
        if self.is_local and set_here:
            raise ValueError(f'{set_here[0]} is an SSH key, and transport = "local" uses no SSH')
        return self


class Whole(Table):
    """What a hosts.toml says beside its hosts."""

    project: Name
    ssh_config: str | None = None
    keep_connections_s: Seconds = 300.0
    source: Source = Source()
    data: dict[Place, DataSet] = {}
    training: Training
    restart: Restart = Restart()


class Inventory(Whole):
    """A validated hosts.toml. `file` is where it was read; paths in it are relative to that."""

    file: Path
    hosts: Annotated[tuple[Host, ...], Field(min_length=1)]

    @property
    def source_root(self) -> Path:
        return (self.file.parent / Path(self.source.path).expanduser()).resolve()

    def data_root(self, place: str) -> Path:
        """Where a data set lies at home; links on the way are not followed yet."""
        path = self.data[place].path
        return (
            self.source_root / place if path is None else self.file.parent / Path(path).expanduser()
        )

    def host(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)


class File(Whole):
    """The file as it is written: hosts as tables by name, defaults not yet laid under them."""

    defaults: HostSettings = HostSettings()
    hosts: Annotated[dict[str, dict[str, Any]], Field(min_length=1)]
