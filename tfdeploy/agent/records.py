"""The wire format: what the controller and the agent tell each other, and what is kept on disk."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Dict, List, Optional, Type, TypeVar

R = TypeVar("R")

# Every line that the agent means for the controller begins so: a shell profile may print too.
MARK = "tfdeploy-answer:"

STARTING = "STARTING"
RUNNING = "RUNNING"
READY = "READY"
SUCCEEDED = "SUCCEEDED"
FAILED = "FAILED"
STOPPED = "STOPPED"
LOST = "LOST"
ENDED = (SUCCEEDED, FAILED, STOPPED, LOST)


@dataclass(frozen=True)
class Launch:
    """The complete order for one task, and the only thing that is sent to start it.

    `port` is None for a task that opens none. `checkpoint_dir` is relative to the task's work
    directory, or absolute. `no_proxy` holds the addresses that must not go through a proxy.
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
    stop_grace_s: float

    @property
    def task(self) -> str:
        return "{}:{}".format(self.job, self.index)


@dataclass(frozen=True)
class TaskState:
    """What the supervisor last wrote about its task; it alone writes this.

    `since` is the host's own clock in seconds, only ever compared on that host. `exit` is the
    process's exit code, negative for a signal, None while it runs. `reason` is for people.
    """

    state: str
    since: float
    pid: Optional[int] = None
    exit: Optional[int] = None
    restarts: int = 0
    reason: str = ""


@dataclass(frozen=True)
class TaskReport:
    """A task as its host sees it when asked. `age_s` is how long the state has lasted there.

    `health` is what its port answers now (see health.py), "-" where it has none or is not running.
    `log` holds the last lines of its log, where they were asked for.
    """

    task: str
    state: str
    age_s: float
    pid: Optional[int]
    exit: Optional[int]
    restarts: int
    reason: str
    health: str = "-"
    log: List[str] = field(default_factory=list)


def to_json(record: Any) -> Dict[str, Any]:
    return asdict(record)


def from_json(kind: Type[R], data: Dict[str, Any]) -> R:
    """Read a record, leaving out what a newer version may have added."""
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    return kind(**{key: value for key, value in data.items() if key in known})


def write(path: str, data: Any) -> None:
    """Write JSON so that a reader sees the old or the new whole, never a part."""
    fresh = "{}.{}.new".format(path, os.getpid())
    with open(fresh, "w", encoding="utf-8") as file:
        json.dump(data, file, ensure_ascii=False, indent=1)
    os.replace(fresh, path)


def load(kind: Type[R], path: str) -> R:
    """Read the record that stands in a file. Raises OSError or ValueError where it can't."""
    return from_json(kind, read(path))


def read(path: str) -> Any:
    with open(path, encoding="utf-8") as file:
        return json.load(file)
