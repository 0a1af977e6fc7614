"""The records that the controller and the agent exchange, and that are stored on disk as JSON."""

from __future__ import annotations

import hmac
import json
import os
from typing import Any, Dict, Iterable, List, Optional, Sequence, Type, TypeVar, Union

from . import filesystem
from .protocol.message import parse
from .protocol.record import Record, field, replace
from .protocol.record import to_json as to_json

R = TypeVar("R")


QUEUED = "QUEUED"
STARTING = "STARTING"
RUNNING = "RUNNING"
READY = "READY"
BACKOFF = "BACKOFF"
SUCCEEDED = "SUCCEEDED"
FAILED = "FAILED"
STOPPED = "STOPPED"
LOST = "LOST"
UNKNOWN = "UNKNOWN"  # its host never had the task, or does not have it any more
# What a probe of a task's port finds, besides READY.
NOT_LISTENING = "NOT_LISTENING"
UNREACHABLE = "UNREACHABLE"
NOT_GRPC = "NOT_GRPC"
FROZEN = "FROZEN"
PAUSED = "PAUSED"  # a process of the task is stopped by a signal, whatever its port says
WRONG_TASK = "WRONG_TASK"
HEALTHS = (READY, NOT_LISTENING, UNREACHABLE, NOT_GRPC, FROZEN, PAUSED, WRONG_TASK)
SERVER, PORT, PROCESS, RENDEZVOUS = "server", "port", "process", "rendezvous"
GUARDED, STRICT, OPEN = "guarded", "strict", "open"
# Stands for the task's directory, which only its host knows, in argv, env and files. No other text
# can have this character.
TASK_DIRECTORY = "\0"
# The reasons of a task that is STARTING, and of one that is QUEUED, that others act on.
GETS_CHECKPOINTS = "gets the chief's checkpoints"
HAS_PLACES = "has what it needs here, and waits for other tasks of its run"
ENDED = (SUCCEEDED, FAILED, STOPPED, LOST)
HIGH, NORMAL = "high", "normal"  # the priorities of runs that wait
# The last exception of a process that lost a peer. Such tasks continue if all are restarted.
PEER_ERRORS = ("UnavailableError", "AbortedError", "CancelledError", "DeadlineExceededError")
# Their status codes, as TensorFlow and gRPC print them.
PEER_STATUS_CODES = ("UNAVAILABLE", "ABORTED", "CANCELLED", "DEADLINE_EXCEEDED")


# Of the files beside a task that record its states, about a thousand, and its GPUs' use: 17 hours
# of one GPU at full resolution, 5 hours of eight.
MAX_HISTORY_BYTES = 1 << 17

# Of a task's log, the newest part: about a million lines, and it fills no disk.
MAX_LOG_BYTES = 100_000_000

# Files are padded to whole blocks: on a full disk only blocks that a file has can be written.
BLOCK = 4096


class Policy(Record):
    """When a task is restarted: [restart] in hosts.toml.

    A task is restarted at most `attempts` times in an hour, after `delay_s` and then after twice
    the delay before. `exits` are the exit codes after which it is restarted; signals are names such
    as "SIGKILL", or "signals" for all of them. A task is also restarted if it is FROZEN for
    `frozen_timeout_s`, or has made no progress for `stall_timeout_s` (None: this is not checked).
    """

    attempts: int
    delay_s: float
    exits: List[Union[int, str]]
    frozen_timeout_s: float
    stall_timeout_s: Optional[float]


class HeartbeatSettings(Record):
    """How the supervisors of a run exchange heartbeats: the chief's serves them at address:port.

    `secret` signs the messages of `task`, the task that has these settings; messages that are not
    signed are neither answered nor believed. The chief's is the run's own, from which it finds
    those of the other tasks, so that no other task can speak for them. `launch_name` names this
    launch of the run. `tasks` are all tasks of the run, `needed` those that the chief can't run
    without, `replicas` those whose supervisors keep copies of its checkpoints. A supervisor that
    gets no heartbeat for `orphan_timeout_s` stops its task.
    """

    address: str
    port: int
    secret: str
    chief: str
    tasks: List[str]
    needed: List[str]
    replicas: List[str]
    orphan_timeout_s: float
    task: str = ""
    launch_name: str = ""

    def secret_of(self, task: str) -> str:
        """Return a task's secret; these settings must be the chief's."""
        if task == self.chief:
            return self.secret
        return hmac.new(self.secret.encode(), task.encode(), "sha256").hexdigest()

    def of(self, task: str) -> HeartbeatSettings:
        """Return the settings of a task; these must be the chief's."""
        return replace(self, task=task, secret=self.secret_of(task))


class OutputSelection(Record):
    """Which files of a task the controller collects.

    `patterns` are [includes, regular expression] pairs for paths relative to the task's directory;
    the last one that matches decides. `folders` are absolute paths. The newest `copied_bytes` of
    the chief's files are copied to the hosts that keep replicas: all of them, or, if only an
    evaluator reads them, those in the chief's folder `copied_from`.
    """

    patterns: List[List[Any]] = field(default_factory=list)
    folders: List[str] = field(default_factory=list)
    copied_bytes: int = 0
    copied_from: str = ""


class Notification(Record):
    """What the chief's supervisor does at the end of the run: [notify] in hosts.toml.

    `on_end` is for every end, `on_failure` for failures, `on_slow` for what is slower than the rest
    of the run: a command that gets the run's summary on its standard input, or a URL as the only
    word; none if empty. The summary needs `hosts`, the
    host of each task, `flags`, the options that name the run on tfdeploy's command line, and the
    user's `name` for the run, if any.
    """

    on_end: List[str] = field(default_factory=list)
    on_failure: List[str] = field(default_factory=list)
    hosts: Dict[str, str] = field(default_factory=dict)
    flags: str = ""
    name: str = ""
    on_slow: List[str] = field(default_factory=list)

    def targets(self, *keys: str) -> Dict[str, List[str]]:
        """Return the targets of these keys that are set, or of all."""
        found = {key: getattr(self, key) for key in keys or ("on_end", "on_failure", "on_slow")}
        return {key: target for key, target in found.items() if target}


VISIBLE = "CUDA_VISIBLE_DEVICES"


def visible_devices(gpus: Iterable[object]) -> str:
    """Return the value of VISIBLE that shows a process only these GPUs: indexes, or UUIDs."""
    return ",".join(map(str, gpus)) or "-1"


def is_url(target: List[str]) -> bool:
    """Return whether a target of [notify] is a URL, not a command."""
    return len(target) == 1 and target[0].lower().startswith(("http://", "https://"))


class TrialSettings(Record):
    """The trials of a run: [trials] in hosts.toml.

    `points` are the parameters of each trial, by number; a run without them has none. `objective`
    is the name of a scalar, "" for none, of which the largest value is best if `mode` is "max",
    and the smallest if it is "min". The other fields are those of [trials].
    """

    points: List[Dict[str, str]] = field(default_factory=list)
    objective: str = ""
    mode: str = "max"
    stop_bad: bool = False
    attempts: int = 2


def parameter_mark(name: str = "") -> str:
    """Return what stands for a parameter in argv, env and files, or for the trial's number. No
    other text can have this character."""
    return "\1{}\1".format(name)


class Process(Record):
    """What a task runs: `argv`, with the variables `env` and `secrets`; these are never shown.

    `environment` is the Python environment that it runs in, "" for none; `argv` names its python.
    """

    argv: List[str]
    env: Dict[str, str]
    secrets: Dict[str, str] = field(default_factory=dict)
    environment: str = ""


class Directory(Record):
    """What a task's directory has: the files of its `release`, and more.

    `checkpoint_dir` is absolute, or relative to the directory. `data`, `files` and `links` map
    places in the directory to the release of a data set, to a file's text, and to a path relative
    to the place.
    """

    release: str
    checkpoint_dir: str
    data: Dict[str, str] = field(default_factory=dict)
    files: Dict[str, str] = field(default_factory=dict)
    links: Dict[str, str] = field(default_factory=dict)


class Endpoint(Record):
    """How other tasks reach a task, and how its supervisor sees that it is READY.

    - `port` is None for a task that opens none.
    - `address` is its host's, as the other hosts reach it; `no_proxy` lists the addresses that must
      not be reached through a proxy.
    - `ready` says when the task is READY: its SERVER answers with its own `name`, its PORT is open,
      its PROCESS runs, or at the RENDEZVOUS: the chief listens on its port, `master_port`, and each
      other task has a connection to that port.
    - `network` says who may connect to its ports: if GUARDED, only the hosts of the run, and on its
      own host only processes of its user; if OPEN, everybody. If STRICT, it is guarded, and ends if
      it opens a port that the guard does not cover.
    """

    port: Optional[int]
    no_proxy: List[str]
    address: str = ""
    name: str = ""
    ready: str = SERVER
    master_port: Optional[int] = None
    network: str = OPEN

    @property
    def health_port(self) -> Optional[int]:
        """Return the port to probe; None if only the process shows the task's health."""
        return None if self.ready in (PROCESS, RENDEZVOUS) else self.port

    @property
    def is_ready_at_once(self) -> bool:
        return self.health_port is None and self.master_port is None

    @property
    def own_ports(self) -> List[int]:
        return [] if self.port is None else [self.port]


class Gpus(Record):
    """The GPUs of a task: their `indexes`, or as many of `choice`, of which its host chooses free
    ones. If they are `shared`, foreign processes may use them, too; with `exclude_sick`, it gets
    none with which something may be wrong."""

    indexes: List[int]
    choice: List[int] = field(default_factory=list)
    shared: bool = False
    exclude_sick: bool = False


class Limits(Record):
    """How long a task may take.

    - `linger_s` is how long it may run after the chief has succeeded, None for no limit.
    - `max_duration_s` is how long the run may last: the chief's supervisor ends it, and after the
      chief's end the task's own. `age_s` is how long ago the run was first started, 0 for its first
      start.
    - `idle_gpu_stop_s` is how long all GPUs of the run may be idle, None for no limit.
    """

    ready_timeout_s: float
    stop_grace_s: float
    linger_s: Optional[float]
    max_duration_s: Optional[float]
    idle_gpu_stop_s: Optional[float] = None
    age_s: float = 0.0


class QueuePlace(Record):
    """Where a run stands in the queue of its hosts.

    `submitted` is 0, or the run waits for its turn: it is when it was submitted, in seconds since
    1970 by the clock of its chief's host. Of runs that wait, those with the `priority` HIGH come
    first. `waits_for` are the leases that the task waits for; its host fills it in.
    """

    submitted: int = 0
    priority: str = NORMAL
    waits_for: List[str] = field(default_factory=list)


class Launch(Record):
    """Everything that a host needs to start one task, such as "worker:0".

    `outputs` are collected by the controller. `notify` says who learns of the end of the run; only
    the chief has it. With `trials`, the task is a slot, which runs one trial after the other.
    """

    project: str
    run: str
    task: str
    process: Process
    directory: Directory
    endpoint: Endpoint
    gpus: Gpus
    limits: Limits
    policy: Policy
    heartbeat: HeartbeatSettings
    outputs: OutputSelection = field(default_factory=OutputSelection)
    notify: Notification = field(default_factory=Notification)
    trials: TrialSettings = field(default_factory=TrialSettings)
    turn: QueuePlace = field(default_factory=QueuePlace)

    @property
    def job(self) -> str:
        return self.task.partition(":")[0]

    @property
    def index(self) -> int:
        return int(self.task.partition(":")[2])

    @property
    def is_chief(self) -> bool:
        return self.task == self.heartbeat.chief

    @property
    def has_peers(self) -> bool:
        """Return whether other tasks must understand what this one sends to its port."""
        return self.endpoint.port is not None and len(self.heartbeat.tasks) > 1

    @property
    def trains_in_step(self) -> bool:
        """Return whether the task can only train together with the other workers of its run: they
        meet at a rendezvous, or they have TensorFlow's servers and no ps."""
        tasks = self.heartbeat.tasks
        if self.job in ("ps", "evaluator") or sum(map(is_trainer, tasks)) < 2:
            return False
        has_ps = any(task.startswith("ps:") for task in tasks)
        meets = self.endpoint.master_port is not None
        return meets or (self.endpoint.ready == SERVER and not has_ps)

    @property
    def leased_ports(self) -> List[int]:
        """For the chief the port of its heartbeat, and then the task's own port, if it has one."""
        own = self.endpoint.own_ports
        return [self.heartbeat.port, *own] if self.is_chief else own

    def on_gpus(self, gpus: List[int], variables: Dict[str, str]) -> Launch:
        """Return the launch of a task that has these GPUs, which the variables show, and no choice
        any more."""
        process = replace(self.process, env={**self.process.env, **variables})
        return replace(self, gpus=replace(self.gpus, indexes=gpus, choice=[]), process=process)

    def in_directory(self, directory: str) -> Launch:
        """Return the launch of a task whose directory is `directory`."""
        return self._with({TASK_DIRECTORY: directory})

    def of_trial(self, number: int) -> Launch:
        """Return the launch of a trial: with its parameters, and without the other trials."""
        point = {parameter_mark(name): v for name, v in self.trials.points[number].items()}
        return replace(self._with({parameter_mark(): str(number), **point}), trials=TrialSettings())

    def _with(self, values: Dict[str, str]) -> Launch:
        def fill(text: str) -> str:
            for mark, value in values.items():
                text = text.replace(mark, value)
            return text

        def fill_all(texts: Dict[str, str]) -> Dict[str, str]:
            return {name: fill(text) for name, text in texts.items()}

        argv = [fill(word) for word in self.process.argv]
        process = replace(self.process, argv=argv, env=fill_all(self.process.env))
        directory = replace(self.directory, files=fill_all(self.directory.files))
        return replace(self, process=process, directory=directory)


def is_trainer(task: str) -> bool:
    """Return whether a task trains: it is a worker, or a chief with a job of its own."""
    return not task.startswith(("ps:", "evaluator:"))


class GpuNeed(Record):
    """The GPUs that tasks of one host need: `count` of `gpus`. If these are `shared`, foreign
    processes may use them, too; with `exclude_sick`, none may have a problem."""

    gpus: List[int]
    count: int
    shared: bool = False
    exclude_sick: bool = False


def gpu_need(launches: Sequence[Launch]) -> GpuNeed:
    """Return what tasks of one host need; either all of them have a choice, or none has."""
    planned = [gpu for launch in launches for gpu in launch.gpus.indexes]
    choice = next((launch.gpus.choice for launch in launches if launch.gpus.choice), planned)
    shared = any(launch.gpus.shared for launch in launches)
    exclude = any(launch.gpus.exclude_sick for launch in launches)
    return GpuNeed(choice, len(planned), shared, exclude)


class Health(Record):
    """What a probe of a task's port found: one of HEALTHS, and a description for
    people."""

    verdict: str
    detail: str = ""


class TaskState(Record):
    """What the supervisor last wrote about its task. No other process writes it while it runs.

    `since` is in seconds of the host's own clock, and only compared on that host. `boot` is the id
    of the host's boot: after the next boot, pids mean nothing. `exit` is the process's last exit
    code, negative for a signal, None before the first. `reason` is for users; `cause` is the task
    whose end made this one end. `planned` says that max_duration_s ended the task, `others_ended`
    that all other tasks have reported their end to the chief. `exposed` names the ports of the task
    that the guard does not cover, and their processes.
    """

    state: str
    since: float
    boot: str = ""
    pid: Optional[int] = None
    exit: Optional[int] = None
    restarts: int = 0
    reason: str = ""
    cause: str = ""
    planned: bool = False
    others_ended: bool = False
    exposed: str = ""


class LogProgress(Record):
    """What the end of a log says about the training."""

    epoch: Optional[int] = None
    """The epoch, as the program numbers it."""
    epochs: Optional[int] = None
    """The number of epochs."""
    batch: Optional[int] = None
    """The batch of this epoch, or the count of a progress bar."""
    batches: Optional[int] = None
    """The number of batches of an epoch."""
    step: Optional[int] = None
    """The global step."""
    loss: str = ""
    """The loss, as it was printed, also "nan", or ""."""
    waits_for: List[str] = field(default_factory=list)
    """The tasks that TensorFlow waits for, by their names in scripts."""


class Pace(Record):
    """How fast a task trains, and what may slow down its host."""

    seconds: float
    """The time of the averages: the last five minutes, or less."""
    steps_per_s: Optional[float]
    """The steps, or batches of Keras, in a second."""
    cpus: int
    """The processors of the host."""
    other_cpus: float
    """How many of them others use."""
    disk_wait_cpus: float
    """How many of them wait for a disk."""
    swapped_bytes_s: float
    """The bytes that the host swaps in a second."""
    resent: float
    """The part of its TCP segments that was sent again."""
    hot: float
    """The part of the time in which a hot processor ran slower."""
    stopped: float
    """The part of the time in which a CPU quota stopped it."""
    gpu_problems: List[str] = field(default_factory=list)
    """What may be wrong with its GPUs."""


class TaskReport(Record):
    """The status of a task, as its host reports it."""

    task: str
    """The task, such as `worker:1`."""
    state: str
    """QUEUED, STARTING, RUNNING, READY, BACKOFF, SUCCEEDED, FAILED, STOPPED or LOST."""
    age_s: float
    """The seconds since it entered this state."""
    pid: Optional[int]
    """The id of its process."""
    exit: Optional[int]
    """The last exit code of its process; negative for a signal."""
    restarts: int
    """How often it was restarted."""
    reason: str
    """Why it is in this state."""
    cause: str = ""
    """The task whose end made it end, or ""."""
    health: str = "-"
    """What its port answers, or `-`."""
    step: Optional[int] = None
    """The last training step in its event files."""
    step_age_s: Optional[float] = None
    """The seconds since that step."""
    quiet_s: Optional[float] = None
    """The seconds since its log or event files changed."""
    planned: bool = False
    """Whether max_duration_s ended it."""
    log_progress: Optional[LogProgress] = None
    """What its log says about the training."""
    log: List[str] = field(default_factory=list)
    """The last lines of its log, if requested; --json requests none."""
    log_problem: str = ""
    """Why its log can't be read, or ""."""
    notice: str = ""
    """Which notification of the run's end has failed, or ""."""
    exposed: str = ""
    """The ports that the guard does not cover, and their processes, or ""."""
    pace: Optional[Pace] = None
    """How fast it trains, and what its host does."""
    gpus: Optional[List[int]] = None
    """The indices of its GPUs; null if its host has not chosen them yet."""
    versions: Dict[str, str] = field(default_factory=dict)
    """The versions that its process has imported, by name."""
    ends_s: Optional[float] = None
    """The seconds after which max_duration_s ends it at the latest."""


def write(path: str, data: Any, mode: int = 0o666) -> None:
    """Write JSON so that a reader sees the old or the new content, never a part.

    `mode` is that of open(2), limited by the umask. Raises OSError.
    """
    text = json.dumps(data, ensure_ascii=False).encode("utf-8", "surrogatepass")
    text += b" " * (-len(text) % BLOCK)
    try:
        filesystem.replace_file(path, text, mode)
    except OSError as error:
        if not (filesystem.is_disk_full(error) and os.path.exists(path)):
            raise
        _overwrite(path, text)


def _overwrite(path: str, text: bytes) -> None:
    """Write in one call the blocks that the file has already: this works on a full disk too."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        os.pwrite(descriptor, text, 0)
        os.ftruncate(descriptor, len(text))
    finally:
        os.close(descriptor)


def load(kind: Type[R], path: str) -> R:
    """Read a record from a file. Raises OSError, or ValueError if the file does not have it."""
    return parse(kind, read(path))


def read(path: str) -> Any:
    """Return the JSON in a file. Raises OSError, also if it is no regular file, and ValueError."""
    return json.loads(filesystem.read_bytes(path).decode("utf-8", "surrogatepass"))


def read_or_empty(kind: Type[R], path: str) -> R:
    """Return the dict or the list in a file; an empty one if it can't be read, or has another."""
    try:
        found = read(path)
    except (OSError, ValueError):
        return kind()
    return found if isinstance(found, kind) else kind()
