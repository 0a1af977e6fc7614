"""What a host finds out before tasks start, and who reaches whom."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from ..records import OPEN, GpuNeed
from .message import Done, Message, Request, RunRequest, TaskRequest


class ImportFacts(Message):
    """What an import of a module found: its `version`, and how many GPUs it sees if it is
    TensorFlow; or `error`, and whether the import was only too `slow`. `python` is the version of
    the tasks' Python, `libraries` those of what the module uses, such as CUDA."""

    version: str = ""
    gpus: int = 0
    error: str = ""
    slow: bool = False
    python: str = ""
    libraries: Dict[str, str] = {}  # noqa: RUF012 - nothing changes it


class Statement(Message):
    """An import: its `text`, and where a program has it."""

    file: str
    line: int
    text: str


class ProgramError(Message):
    """What keeps a program from starting, and where; `missing` is the module that an import does
    not find, "" for another error."""

    file: str
    line: int
    error: str
    missing: str


class SurveyAnswer(Message, tag="survey_answer"):
    """`version` is the agent's Python; `imports` are the modules that the tasks' Python was asked
    to import; `gpus` are the names of its GPUs, by index; `hindrances` are
    (message, hint) pairs, of what would keep a start from going well; `times` are when the host
    started and finished, by its clock in seconds since 1970. `driver` is the version of NVIDIA's;
    `unbuilt`: the tasks' environment is not built, so nothing was imported. `gpu_problems` are
    sentences about GPUs with which something may be wrong; `gpu_failure` is the message and the
    hint if nobody can list them."""

    version: str
    imports: Dict[str, ImportFacts]
    rsync: str
    gpus: Dict[str, str]
    here: str
    free_bytes: int
    hindrances: List[Tuple[str, str]]
    times: Tuple[float, float]
    driver: str
    unbuilt: bool
    program: List[ProgramError] = []  # noqa: RUF012 - nothing changes it
    gpu_problems: List[str] = []  # noqa: RUF012 - as above
    gpu_failure: Optional[Tuple[str, str]] = None


class Survey(Request[SurveyAnswer], tag="survey"):
    """Look at a host as its tasks will find it. `imports` are modules; `programs` are the first
    words of commands, with the tasks that run them; `network` is that of records.Launch;
    `environment` is the tasks' Python environment, "" for none. `sources` are texts of Python files
    to compile, by their paths; `statements` are imports to try."""

    REPEATABLE = True
    python: str
    env: Dict[str, str]
    need: GpuNeed
    imports: List[str]
    programs: Dict[str, List[str]]
    network: str = OPEN
    project: str = ""
    environment: str = ""
    sources: Dict[str, str] = {}  # noqa: RUF012 - as above
    statements: List[Statement] = []  # noqa: RUF012 - as above


class PythonFound(Message):
    """A Python of a host: its `path`, absolute or "~/…", or "python3" for the one on the PATH; its
    `version`; and the version of the `framework` that is installed for it, "" if none is."""

    path: str
    version: str
    framework: str


class MachineFacts(Message, tag="machine_facts"):
    """What a machine is: `cpus` that its user may use, `memory_bytes`, the names of its GPUs by
    index, the IP `addresses` of its interfaces except loopback, and its Pythons, those of the PATH
    first; `machine` and `libc` as in EnvironmentState."""

    cpus: int
    memory_bytes: int
    gpus: Dict[str, str]
    addresses: List[str]
    pythons: List[PythonFound]
    machine: str
    libc: str


class Explore(Request[MachineFacts], tag="explore"):
    """Look at a machine before there is a hosts.toml. `pythons` are more paths to look at;
    `framework` is the module that tasks need, such as tensorflow. The machine is the controller
    itself, or another host."""

    REPEATABLE = True
    pythons: List[str]
    framework: str
    is_controller: bool


class TriedPorts(Message, tag="tried_ports"):
    """For each address why it is not reached, "" if it is; in the order of the request."""

    answers: List[str]


class Address(Message):
    """A TCP port to connect to."""

    address: str
    port: int


class TryPorts(Request[TriedPorts], tag="try_ports"):
    """Connect to ports of other hosts. `timeout_s` is for each."""

    at: List[Address]
    timeout_s: float


class FreePorts(Message, tag="free_ports"):
    """TCP ports that nothing uses or has leased, and the host's clock in seconds since 1970."""

    ports: List[int]
    time: float = 0.0


class Ports(Request[FreePorts], tag="ports"):
    """Ask for `count` free ports, of any or `among` these."""

    REPEATABLE = True
    count: int
    among: List[int] = []  # noqa: RUF012 - as above


class RequireUnawaited(Request[Done], tag="require_unawaited"):
    """Ask to refuse, as a start of `run` without the queue would be, if other runs wait for one of
    the ports `numbers` or for too many of its GPUs."""

    REPEATABLE = True
    run: str
    numbers: List[int]
    need: GpuNeed


class Peer(Message):
    """A task to connect to; `name` is what its own server calls it, "" if it need not answer."""

    task: str
    name: str
    address: str
    port: int


REFUSED = "REFUSED"


class PeerHealth(Message):
    """What the port of a task answered: a verdict of agent/machine/grpc_health.py, or REFUSED by
    the guard of the task."""

    task: str
    verdict: str
    detail: str


class PeersAsked(Message, tag="peers_asked"):
    """`chief` says why the chief's supervisor is not reached, "" if it is."""

    peers: List[PeerHealth]
    chief: str


class Peers(RunRequest[PeersAsked], tag="peers"):
    """Connect to tasks on other hosts, and to the chief's supervisor."""

    REPEATABLE = True
    peers_asked: List[Peer]
    timeout_s: float


class StillRunning(Message, tag="still_running"):
    """Tasks that have not reported to the chief's supervisor that they ended."""

    tasks: List[str]


class UnfinishedTasks(TaskRequest[StillRunning], tag="unfinished_tasks"):
    """Ask the chief's supervisor which tasks are still running; `task` is the chief."""

    REPEATABLE = True
    timeout_s: float


class OpenPorts(Message, tag="open_ports"):
    """The port of each task, and (message, hint) for each port that cannot be opened."""

    open: Dict[str, int]
    taken: List[Tuple[str, str]]


class ListenOnPorts(Request[OpenPorts], tag="listen_on_ports"):
    """Listen on the ports that tasks will have (0: a free one), until the controller hangs up."""

    wanted: Dict[str, int]


class LiveTasks(Message, tag="live_tasks"):
    """What has ports or GPUs of the host, in words such as `worker:0 of run x of digits`."""

    holders: List[str]


class FindLiveTasks(Request[LiveTasks], tag="find_live_tasks"):
    """Ask which tasks of any user run on the host."""

    REPEATABLE = True


class Interface(Message):
    """One end of a connection: the interface's `name`, "" for loopback, and the speed at which its
    card runs, None if it does not say."""

    name: str
    megabits_per_s: Optional[int] = None


class LinkPort(Message, tag="link_port"):
    """The port on which a host listens for the measurement of links, and an address of each of its
    interfaces, by their names, without loopback and those of containers."""

    port: int
    addresses: Dict[str, str]


class ListenForLinks(Request[LinkPort], tag="listen_for_links"):
    """Listen on the first of these ports that is free, until the controller hangs up. `secrets` are
    those of the clients that may connect, once each."""

    ports_wanted: List[int]
    secrets: Dict[str, str]


class MeasuredLink(Message, tag="measured_link"):
    """How many bytes a second a host sent to another one, and received from it, and the seconds of
    a round trip. `own` and `peer` are the ends of the connection."""

    sent: float
    received: float
    round_trip_s: float
    own: Interface
    peer: Interface


class MeasureLink(Request[MeasuredLink], tag="measure_link"):
    """Measure the link to a host that listens for `client`, for `seconds` in each direction."""

    address: str
    port: int
    client: str
    secret: str
    seconds: float
    max_bytes: int
