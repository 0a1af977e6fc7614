"""The wire format: what the controller and the agent tell each other, and what is kept on disk."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import asdict, dataclass, field, fields

from . import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Type, TypeVar, Union

    R = TypeVar("R")

STARTING = "STARTING"
RUNNING = "RUNNING"
READY = "READY"
BACKOFF = "BACKOFF"
SUCCEEDED = "SUCCEEDED"
FAILED = "FAILED"
STOPPED = "STOPPED"
LOST = "LOST"
SERVER, PORT, PROCESS = "server", "port", "process"
ENDED = (SUCCEEDED, FAILED, STOPPED, LOST)


# State is written in whole blocks, so that it can be written in place when the disk is full.
BLOCK = 4096


@dataclass(frozen=True)
class Policy:
    """When a task is begun again, and when it is ended for that: [restart] in hosts.toml.

    At most `attempts` restarts within `window_s`; the first one waits `delay_s`, each further one
    twice as long, up to `max_delay_s`. `exits` are the exit codes that are retried, "SIGKILL" and
    the like among them, "signals" for all of these. `stall_timeout_s` is None where it isn't asked.
    """

    attempts: int
    window_s: float
    delay_s: float
    max_delay_s: float
    exits: List[Union[int, str]]
    frozen_timeout_s: float
    stall_timeout_s: Optional[float]


@dataclass(frozen=True)
class Circle:
    """How the tasks of a run hear of each other: the chief's supervisor tells at address:port.

    `secret` is the run's own; whoever doesn't know it is told nothing and believed nothing.
    `tasks` are all of the run's, `needed` those without which the chief can't go on, `replicas`
    those whose supervisors keep copies of its checkpoints. Who has heard nothing for
    `orphan_timeout_s` gives up.
    """

    address: str
    port: int
    secret: str
    chief: str
    tasks: List[str]
    needed: List[str]
    replicas: List[str]
    orphan_timeout_s: float

    @property
    def name(self) -> str:
        """Tells this launch of the run from others, and nothing of the secret."""
        import hashlib  # it loads OpenSSL, and few calls ask for this

        return hashlib.sha256(self.secret.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Launch:
    """The complete order for one task, and the only thing that is sent to start it.

    `port` is None for a task that opens none. `checkpoint_dir` is relative to the task's work
    directory, or absolute. `no_proxy` holds the addresses that must not go through a proxy.
    `linger_s` is how long it may go on after the chief's success, `max_duration_s` how long the
    run may last (its chief looks to that), and `log_limit_bytes` how much of its log is kept.
    `data` says which release is to be seen at which place in the task's directory, `files` which
    text, `links` which path, relative to the place. `ready` is what makes it READY: its SERVER
    answers with its own `name`, its PORT is open, or its PROCESS runs.
    """

    project: str
    run: str
    job: str
    index: int
    release: str
    argv: List[str]
    env: Dict[str, str]
    port: Optional[int]
    gpus: List[int]
    checkpoint_dir: str
    no_proxy: List[str]
    ready_timeout_s: float
    stop_grace_s: float
    linger_s: float
    max_duration_s: Optional[float]
    log_limit_bytes: int
    policy: Policy = field(metadata={"kind": Policy})
    circle: Circle = field(metadata={"kind": Circle})
    data: Dict[str, str] = field(default_factory=dict)
    files: Dict[str, str] = field(default_factory=dict)
    links: Dict[str, str] = field(default_factory=dict)
    ready: str = SERVER
    name: str = ""

    @property
    def asked_port(self) -> Optional[int]:
        """The port that tells how the task is; None where its process is all there is."""
        return None if self.ready == PROCESS else self.port

    @property
    def is_chief(self) -> bool:
        return self.task == self.circle.chief

    @property
    def task(self) -> str:
        return "{}:{}".format(self.job, self.index)


@dataclass(frozen=True)
class TaskState:
    """What the supervisor last wrote about its task; it alone writes this.

    `since` is the host's own clock in seconds, only ever compared on that host; `boot` names the
    host's boot, for pids mean nothing after the next. `exit` is the process's last exit code,
    negative for a signal, None before it had one. `reason` is for people; `cause` names the task
    whose end made this one end.
    """

    state: str
    since: float
    boot: str = ""
    pid: Optional[int] = None
    exit: Optional[int] = None
    restarts: int = 0
    reason: str = ""
    cause: str = ""


@dataclass(frozen=True)
class TaskReport:
    """A task as its host sees it when asked. `age_s` is how long the state has lasted there.

    `health` is what its port answers now (see health.py), "-" where it has none or is not running.
    `step` and `step_age_s` are its event files' last training step and how long ago it was reached,
    `quiet_s` how long neither log nor events have grown; None where there is nothing to tell by.
    `log` holds the last lines of its log, where they were asked for.
    """

    task: str
    state: str
    age_s: float
    pid: Optional[int]
    exit: Optional[int]
    restarts: int
    reason: str
    cause: str = ""
    health: str = "-"
    step: Optional[int] = None
    step_age_s: Optional[float] = None
    quiet_s: Optional[float] = None
    log: List[str] = field(default_factory=list)


def to_json(record: Any) -> Dict[str, Any]:
    return asdict(record)


def from_json(kind: Type[R], data: Dict[str, Any]) -> R:
    """Read a record, leaving out what a newer version may have added."""
    values = {}
    for known in fields(kind):  # type: ignore[arg-type]
        if known.name in data:
            value, nested = data[known.name], known.metadata.get("kind")
            values[known.name] = from_json(nested, value) if nested else value
    return kind(**values)


def write(path: str, data: Any) -> None:
    """Write JSON so that a reader sees the old or the new whole, never a part."""
    text = json.dumps(data, ensure_ascii=False, indent=1).encode("utf-8", "surrogatepass")
    text += b" " * (-len(text) % BLOCK)
    fresh = "{}.{}.new".format(path, os.getpid())
    try:
        with open(fresh, "wb") as file:
            file.write(text)
        os.replace(fresh, path)
    except OSError as error:
        _remove(fresh)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _overwrite(path, text)


def _overwrite(path: str, text: bytes) -> None:
    """On a full disk the blocks that the file has already can still be written, at one stroke."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(descriptor, text, 0)
        os.ftruncate(descriptor, len(text))
    finally:
        os.close(descriptor)


def _remove(path: str) -> None:
    try:
        os.remove(path)
    except OSError:
        pass


def load(kind: Type[R], path: str) -> R:
    """Read the record that stands in a file. Raises OSError or ValueError where it can't."""
    return from_json(kind, read(path))


def read(path: str) -> Any:
    with open(path, encoding="utf-8") as file:
        return json.load(file)
