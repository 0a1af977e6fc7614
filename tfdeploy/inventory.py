"""hosts.toml: read, checked key by key, and refused with a sentence before anything is touched."""

from __future__ import annotations

import difflib
import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import toml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tfdeploy.cluster import JOBS
from tfdeploy.errors import InventoryError
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


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


SSH_KEYS = ("hostname", "user", "port", "identity_file", "proxy_jump")
EXPECTED = {
    "bool_type": "expected true or false",
    "dict_type": "expected a table",
    "model_type": "expected a table",
    "int_type": "expected a whole number",
    "string_type": "expected text in quotes",
    "tuple_type": "expected a list",
}
OF_A_KEY = "[key]"  # how pydantic marks that a table's name is wrong, not what it holds
NAMED_BY_TABLE = "unknown key; a host is named by its table, [hosts.NAME]"
T = TypeVar("T", bound=_Table)


class Source(_Table):
    """What is pushed. `path` is relative to hosts.toml; `exclude` has .gitignore's patterns. With
    `relay` many bytes go once from home, and then from host to host."""

    path: str = "."
    exclude: Words = ()
    relay: bool = True


class DataSet(_Table):
    """What tasks read beside the code; its table's name is where they see it. `path` is relative to
    hosts.toml, None for the same place below the source. With `compare` "mtime" a file is the same
    if its size and its time are; "hash" reads every byte at home."""

    path: str | None = None
    jobs: Jobs = ("worker", "chief", "evaluator")
    compare: Literal["mtime", "hash"] = "mtime"
    exclude: Words = ()


class JobTraining(_Table):
    """What holds for the tasks of one job, over [training]. `name` is what scripts call the job."""

    name: JobName | None = None
    command: Command | None = None
    role_args: Words | None = None
    role_env: Environment = {}
    env: Environment = {}


class Training(_Table):
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


class RestartSettings(_Table):
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


class HostSettings(_Table):
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

    @model_validator(mode="after")
    def _local_needs_no_ssh(self) -> Self:
        set_here = [key for key in SSH_KEYS if getattr(self, key) is not None]
        if self.is_local and set_here:
            raise ValueError(f'{set_here[0]} is an SSH key, and transport = "local" uses no SSH')
        return self


class Inventory(_Table):
    """A validated hosts.toml. `file` is where it was read; paths in it are relative to that."""

    file: Path
    project: Name
    ssh_config: str | None = None
    keep_connections_s: Seconds = 300.0
    source: Source = Source()
    data: dict[Place, DataSet] = {}
    training: Training
    restart: Restart = Restart()
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


class _File(_Table):
    """The file as it is written: hosts as tables by name, defaults not yet laid under them."""

    project: Name
    ssh_config: str | None = None
    keep_connections_s: Seconds = 300.0
    source: Source = Source()
    data: dict[Place, DataSet] = {}
    training: Training
    restart: Restart = Restart()
    defaults: HostSettings = HostSettings()
    hosts: Annotated[dict[str, dict[str, Any]], Field(min_length=1)]


def load(file: Path) -> Inventory:
    """Read and check `file`. Raises InventoryError, naming the file, the key path and the value."""
    return parse(_read(file), file)


def parse(text: str, file: Path) -> Inventory:
    """Check the text of a hosts.toml; `file` stands in messages and anchors relative paths."""
    table = _toml(text, file)
    problems: list[str] = []
    written = _checked(_File, table, (), problems)
    tables = table.get("hosts")
    named = tables.items() if isinstance(tables, dict) else ()
    defaults = _sound_defaults(table)
    hosts = [_checked(Host, _settings(name, own, defaults), ("hosts", name), problems)
             for name, own in named if isinstance(own, dict)]  # fmt: skip
    problems += [f"hosts.{name}.name: {NAMED_BY_TABLE}" for name, own in named
                 if isinstance(own, dict) and "name" in own]  # fmt: skip
    if problems or written is None:
        sentences = dict.fromkeys(f"{file}: {problem}" for problem in problems)
        raise InventoryError("\n".join(sentences), "hosts.example.toml shows every key")
    checked = tuple(host for host in hosts if host)
    _refuse_one_machine_twice(checked, file)
    _refuse_data_in_data(written.data, file)
    kept = {key: getattr(written, key) for key in written.model_fields_set - {"defaults", "hosts"}}
    return Inventory(file=file.absolute(), hosts=checked, **kept)


def dump(inventory: Inventory) -> str:
    """The inventory as the text of a hosts.toml, [defaults] laid under each host."""
    table = inventory.model_dump(mode="json", exclude={"file", "hosts"}, exclude_unset=True)
    hosts = {
        host.name: host.model_dump(mode="json", exclude={"name"}, exclude_unset=True)
        for host in inventory.hosts
    }
    return toml.dumps({**_without_none(table), "hosts": _without_none(hosts)}, _Encoder())


class _Encoder(toml.TomlEncoder):  # type: ignore[type-arg]
    """toml's own string writer loses backslashes before "x"; JSON's strings are valid TOML."""

    def __init__(self) -> None:
        super().__init__()
        self.dump_funcs[str] = _quoted


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _read(file: Path) -> str:
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InventoryError(
            f"{file}: there is no such file", "copy hosts.example.toml to it, or say --hosts FILE"
        ) from None
    except OSError as error:
        raise InventoryError(f"{file}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InventoryError(
            f"{file}: line {line} is not UTF-8 (byte 0x{error.object[error.start]:02x}), "
            "which TOML must be"
        ) from None
    if not text.strip():
        raise InventoryError(f"{file}: the file is empty", "hosts.example.toml shows every key")
    return text


def _toml(text: str, file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InventoryError(f"{file}: not TOML: {error}") from None


def _checked(model: type[T], table: Any, prefix: tuple[str, ...], problems: list[str]) -> T | None:
    try:
        return model.model_validate(table)
    except ValidationError as error:
        problems += [_sentence(detail, prefix) for detail in error.errors()]
        return None


def _sound_defaults(table: dict[str, Any]) -> dict[str, Any]:
    """[defaults] without the keys that it holds wrongly: those are reported where they stand."""
    given = table.get("defaults")
    defaults = given if isinstance(given, dict) else {}
    try:
        HostSettings.model_validate(defaults)
    except ValidationError as error:
        wrong = {detail["loc"][0] for detail in error.errors() if detail["loc"]}
        return {key: value for key, value in defaults.items() if key not in wrong}
    return defaults


def _settings(name: str, own: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """One host's keys with those of [defaults] under them; only `env` is merged, not replaced.

    SSH keys of [defaults] are left out for a local host: they are meant for the others.
    """
    if own.get("transport", defaults.get("transport")) == "local":
        defaults = {key: value for key, value in defaults.items() if key not in SSH_KEYS}
    merged = {**defaults, **own, "name": name}
    if isinstance(own.get("env"), dict):
        merged["env"] = {**defaults.get("env", {}), **own["env"]}
    return merged


def _refuse_one_machine_twice(hosts: tuple[Host, ...], file: Path) -> None:
    seen: dict[Any, str] = {}
    for host in hosts:
        ssh = ((host.hostname or host.name).lower(), host.port or 22)
        where = "local" if host.is_local else ssh
        first = seen.setdefault(where, host.name)
        if first != host.name:
            how = 'transport = "local"' if host.is_local else f"{where[0]} port {where[1]}"
            raise InventoryError(
                f"{file}: hosts.{host.name} is the same machine as hosts.{first} ({how})",
                "give one host all of its tasks: ps = 1 and workers = 2 can stand together",
            )


def _refuse_data_in_data(data: dict[str, DataSet], file: Path) -> None:
    for place in data:
        for outer in data:
            if place.startswith(outer + "/"):
                raise InventoryError(
                    f"{file}: data.{place} would lie in data.{outer}, which is read-only",
                    "give one of them a place of its own, or both in one data set",
                )


def _sentence(detail: Any, prefix: tuple[str, ...]) -> str:
    loc = (*prefix, *(part for part in detail["loc"] if part != OF_A_KEY))
    path = ".".join(str(part) for part in loc)
    found = _shown(detail["input"])
    match detail["type"]:
        case "missing":
            return f"{path} is missing"
        case "extra_forbidden":
            return f"{path}: unknown key{_suggestion(loc)}"
        case "value_error" if loc in (prefix, ("training",)):
            return f"{path}: {detail['ctx']['error']}"
        case "value_error":
            return f"{path}: found {found}; {detail['ctx']['error']}"
        case "too_short":
            return f"{path}: found nothing, expected at least one"
        case _:
            said = detail["msg"].replace("Input should", "it should")
            expected = EXPECTED.get(detail["type"], said)
            return f"{path}: found {found}; {expected}"


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"


def _suggestion(loc: tuple[Any, ...]) -> str:
    tables: dict[str, type[_Table]] = {
        "source": Source, "data": DataSet, "training": Training, "restart": Restart,
        "defaults": HostSettings, "hosts": Host,
    }  # fmt: skip
    model = tables.get(str(loc[0]), _File) if len(loc) > 1 else _File
    if len(loc) == 3 and loc[1] in JOBS:
        model = JobTraining if model is Training else RestartSettings
    allowed = [name for name in model.model_fields if name != "name"]
    close = difflib.get_close_matches(str(loc[-1]), allowed, n=1)
    return f'; did you mean "{close[0]}"?' if close else f"; allowed are {', '.join(allowed)}"


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return value
