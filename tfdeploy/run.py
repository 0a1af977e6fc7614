"""A Run (one plan on one release) and its record on the controller.

The record says what was started; only the hosts know the state of the tasks. Each host of the run
has a copy of the record (see commands/records/recover.py).

runs/<run>/run.json      the release, the agent, the hosts file's name and its folder
runs/<run>/hosts.toml    the inventory as it was started, with every address resolved
runs/<run>/.record.json  both, while they are being replaced: an interrupted command leaves it
runs/<run>/plan          what both say, with every task's host, port and GPUs; signed
runs/<run>/…             what `collect` fetches

Commands about a run read the plan, without validating and planning again. If it is missing, or its
signature is not this user's for these two files in this folder, they are validated as a hosts.toml
is: somebody else or another controller wrote them, or the user has edited them.
"""

from __future__ import annotations

import json
import re
import secrets
import shlex
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, ClassVar

from tfdeploy.config import toml_text
from tfdeploy.config.cluster import JOBS, Task
from tfdeploy.config.hosts_file import hosts_flag, open_hosts_file
from tfdeploy.config.models import Inventory
from tfdeploy.errors import InventoryError, RunError, TfdeployError
from tfdeploy.folders.disk_errors import explain
from tfdeploy.folders.own_folder import OwnFolder, is_own, read_file
from tfdeploy.formatting.short_repr import short_repr
from tfdeploy.planning import placing
from tfdeploy.planning.plan import Placement, Plan
from tfdeploy.planning.roles import RunNames
from tfdeploy.trust import signature, store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

FOLDER = "runs"
# The ids that new_id makes. Other folders among the runs are not shown, and never deleted.
TIME = "%Y%m%d-%H%M%S"
ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")
# A controller's clock may once have been years ahead. What is further ahead was not made by new_id.
MAX_AHEAD = timedelta(days=36525)
# How far another controller's clock, which has made the id of a run, may be ahead.
MAX_CLOCK_DIFFERENCE = timedelta(days=1)
BOTH = ".record.json"
PLAN = "plan"
PLAN_FORMAT = "2"  # part of the signature: a plan with another meaning is not read
START_HINT = "start one: tfdeploy run, or tfdeploy start"
MAX_RECORD_BYTES = 16 << 20
MAX_STARTS = 1 << 53  # `starts` grows by one or to seconds
OTHER_VERSION_HINT = "if another version of tfdeploy started the run, use that one for it"


@dataclass(frozen=True)
class Run:
    """One Plan on one Release."""

    __repr__ = short_repr
    KEYS = ("id", "name", "words", "release", "data", "source", "network", "folder", "tasks")
    NAMES: ClassVar = {"id": "run"}

    id: str
    """The run's id."""
    release: str
    """The id of its release."""
    agent: str
    """The version of the agent that started the run."""
    inventory: Inventory = field(repr=False)
    plan: Plan
    auto_ports: tuple[str, ...] = ()
    """The hosts whose ports were chosen when the run started."""
    launched: str = ""
    """The id of the start or resume that launched the tasks; what cleans up after a start that
    failed ends only the tasks of its own launch."""
    data: Mapping[str, str] = field(default_factory=dict)
    """The release of each data set, by its place."""
    environments: Mapping[str, str] = field(default_factory=dict)
    """The id of each host's Python environment; {} without [env]."""
    by_id_only: bool = False
    """Whether it is found by its id only: it is never the default run of a command."""
    starts: int = 0
    """It grows with each start and resume, by one or to the seconds since the first start; of two
    records, the one with more is newer."""
    name: str = ""
    """The name of --name, or ""."""
    words: tuple[str, ...] = ()
    """The words that the command line added to the command."""
    left_out: tuple[str, ...] = ()
    """The hosts without which it was resumed."""
    written: Mapping[str, str] = field(default_factory=dict)
    """A hash of the value of each key of hosts.toml when it started, by the key's path."""
    known_newer: tuple[str, ...] | None = field(default=None, compare=False)
    """The newer runs of which the controller has a record, if no name has chosen this one: a host
    that knows another one says so. Not part of the record."""
    doubted: tuple[str, ...] = field(default=(), compare=False)
    """The hosts whose newer record, or newer run, is not believed: they are not asked for one. Not
    part of the record."""
    source: Mapping[str, str] = field(default_factory=dict)
    """What git says about its source: `commit`, `branch`, `diff`."""

    @property
    def network(self) -> str:
        """`guarded`, `strict` or `open`: who may connect to the tasks."""
        return self.inventory.network

    @property
    def tasks(self) -> tuple[Placement, ...]:
        """All tasks."""
        return self.plan.placements

    @property
    def flags(self) -> str:
        """Return the options that name this run on tfdeploy's command line."""
        return f"{self.file_flag} --run {self.id}".lstrip()

    @property
    def file_flag(self) -> str:
        """Return the option that names its hosts file there; "" for the default."""
        return hosts_flag(self.inventory.file)

    def may_be_beside(self, run_id: str) -> bool:
        """Return as `may_exist`, for a run of the same project."""
        return may_exist(run_id, self.folder.parent)

    @property
    def names(self) -> RunNames:
        return RunNames(self.id, self.release, self.name, self.data, self.environments)

    @property
    def folder(self) -> Path:
        """The run's folder on the controller."""
        return self.inventory.file.parent / FOLDER / self.id

    def open(self) -> OwnFolder:
        """Return the same folder, to write to it and to delete in it. Raises as `open_runs`
        does."""
        return open_runs(self.inventory.file.parent) / self.id


def new_id(base: Path) -> str:
    """Return a run id that sorts by age: the time in UTC to the second, two hex digits for 1/256
    seconds, and two random ones against collisions.

    It sorts after every run in `base`, the folder runs/, even if the controller's clock was ahead
    when that was started.
    """
    now = datetime.now(UTC)
    newest = max(filter(None, map(made_at, run_ids(base))), default=now)
    if newest > now:
        now = newest + timedelta(seconds=1)
    return f"{now:{TIME}}-{now.microsecond * 256 // 10**6:02x}{secrets.token_hex(1)}"


def made_at(run_id: str) -> datetime | None:
    """Return when `new_id` made an id; None for other names, which users may give to folders, and
    for a date that is impossible or more than a hundred years ahead."""
    if ID.fullmatch(run_id):
        with suppress(ValueError):
            made = datetime.strptime(run_id[:15], TIME).replace(tzinfo=UTC)
            return made if made - datetime.now(UTC) < MAX_AHEAD else None
    return None


def may_exist(run_id: str, base: Path) -> bool:
    """Return whether some controller can have made the id of a run that a host names: its time is
    at most a day later than this clock, or than the newest run in `base`, the folder runs/, because
    this clock may be behind. Else that run would be the newest one for ever. Raises RunError."""
    made, now = made_at(run_id), datetime.now(UTC)
    newest = max((now, *filter(None, map(made_at, run_ids(base)))))
    return made is not None and made - newest <= MAX_CLOCK_DIFFERENCE


def by_age(ids: Iterable[str]) -> list[str]:
    """Return the ids of runs, the oldest first. What `new_id` did not make comes before all that it
    made: nobody's folder or answer can be newer than every run."""
    return sorted(ids, key=lambda run_id: (made_at(run_id) is not None, run_id))


def age_s(run_id: str) -> float:
    """Return how many seconds ago `new_id` made an id, by this machine's clock; 0 if it did not."""
    made = made_at(run_id)
    return max(0.0, (datetime.now(UTC) - made).total_seconds()) if made else 0.0


class NoRecord(RunError):
    """The controller has no record of the run, or a broken one; its hosts may have one. `run` is
    its id, or what the user has named, None if there is no run at all."""

    run: str | None = None


@dataclass(frozen=True)
class RecordText:
    """A run's record as text: the content of run.json and of hosts.toml."""

    run_json: str
    hosts_toml: str


def to_record(run: Run) -> RecordText:
    """Return the record of a run."""
    values = {
        "release": run.release,
        "agent": run.agent,
        "hosts_file": run.inventory.file.name,
        "folder": str(run.inventory.file.parent.resolve()),
        "auto_ports": list(run.auto_ports),
        "launched": run.launched,
        "data": dict(run.data),
        "environments": dict(run.environments),
        "by_id_only": run.by_id_only,
        "starts": run.starts,
        "name": run.name,
        "words": list(run.words),
        "left_out": list(run.left_out),
        "source": dict(run.source),
        "written": dict(run.written),
    }
    return RecordText(json.dumps(values, indent=1) + "\n", toml_text.write(run.inventory.to_toml()))


def open_runs(project: Path) -> OwnFolder:
    """Return the folder runs/ of a project, which may not exist. If it is a link, the user must
    have trusted it: raises NotTrusted. Raises OSError."""
    folder = project / FOLDER
    if folder.is_symlink():
        store.refuse_untrusted_link(project)
        return OwnFolder.at(folder)
    return OwnFolder.at(project) / FOLDER


def save(run: Run) -> None:
    """Write the record; a resume replaces the older one. Only this user can read it: `env` in
    hosts.toml may have secrets. Raises RunError if it can't be written, and NotTrusted."""
    record = to_record(run)
    try:
        base, folder = open_runs(run.inventory.file.parent), run.open()
        make_output_folder(base)
        if folder.make():  # a new run: delete what starts that were killed have left
            for other in filter(is_own, base.path.iterdir()):
                (base / other.name).clean_up_files()
        # A resume must not end with the new hosts and the old number of starts.
        folder.write(BOTH, [json.dumps(vars(record)).encode()])
        folder.write(PLAN, [_to_signed_plan(run, record).encode()])
        folder.write("hosts.toml", [record.hosts_toml.encode()])
        folder.write("run.json", [record.run_json.encode()])
        folder.remove(BOTH)
    except OSError as error:
        raise RunError(*explain(error, run.folder)) from None


def make_output_folder(folder: OwnFolder) -> None:
    """Create a folder for tfdeploy's output with a .gitignore that excludes it from git and from
    every release. A folder with anything in it is the user's and stays as it is. Raises OSError."""
    if folder.make() or folder.is_empty():  # a command was killed after it made it
        folder.clean_up_files()
        folder.write(".gitignore", [b"*\n"])


def load(hosts_file: Path, run_id: str | None = None) -> Run:
    """Load a run by its id, or the newest one with this name; without `run_id` the newest one of
    `hosts_file` that is not found by its id only.

    Raises InventoryError if there is no such file, and RunError, NoRecord among them.
    """
    open_hosts_file(hosts_file).close()  # its folder has the runs
    base = hosts_file.absolute().parent / FOLDER
    chosen = _named_run(base, run_id) if run_id else _newest_run(base, hosts_file)
    try:
        found = read_folder(base / chosen)
        return found if run_id else replace(found, known_newer=_newer_than(base, chosen))
    except InventoryError as error:
        file = shlex.quote(str(base / chosen / "hosts.toml"))
        hint = f"rm {file} has it restored from the run's hosts; {OTHER_VERSION_HINT}"
        raise error.with_hint(hint) from None
    except (OSError, ValueError):  # ValueError: no file can have such a name
        task = shlex.quote(chosen)
        hint = f"it names a task: tfdeploy status --task {task}, or tfdeploy logs {task}"
        hint = hint if chosen.partition(":")[0] in JOBS else newest_hint(base)
        missing = NoRecord(f'there is no run "{chosen}" in {base}', hint)
        missing.run = chosen
        raise missing from None
    except NoRecord as broken:
        broken.run = chosen
        raise


def run_ids(base: Path) -> list[str]:
    """Return the ids of the runs, the oldest first: what is a link, or belongs to somebody else, is
    none. Raises RunError if a folder can't be read: the newest run may be in it."""
    try:
        return by_age(each.name for each in base.iterdir() if is_own(each) and _has_record(each))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise RunError(*explain(error, base)) from None


def _has_record(folder: Path) -> bool:
    """Return whether a run's folder has a record. Raises OSError if that can't be known."""
    with suppress(FileNotFoundError):
        (folder / "run.json").lstat()
        return True
    return False


def release_id(hosts_file: Path, release: str) -> str:
    """Return the release of the run with this id or name, or else `release` itself."""
    try:
        return load(hosts_file, release).release
    except NoRecord:
        return release


def newest_hint(base: Path) -> str:
    """Return a hint that lists the newest runs in `base`, with their names."""
    newest = [f"{id_} ({v['name']})" if v["name"] else id_ for id_, v in islice(records(base), 3)]
    if not newest:
        return f"it has no runs yet; {START_HINT}"
    return f"its newest {'runs are' if newest[1:] else 'run is'} {', '.join(newest)}"


def labels(found: Sequence[Run]) -> list[str]:
    """Return what each run is called beside the others: its name if no other has it, or its id."""
    names = [run.name for run in found]
    return [run.name if run.name and names.count(run.name) == 1 else run.id for run in found]


def read_folder(folder: Path) -> Run:
    """Read the run whose record is in `folder`. Raises RunError; OSError if there is no record."""
    record = _read_record(folder)
    hosts_file = parse_run_json(record.run_json, folder)["hosts_file"]
    return _from_texts(record, folder.absolute(), folder.absolute().parent.parent / hosts_file)


def _to_signed_plan(run: Run, record: RecordText) -> str:
    """Return a line with the signature of a record and of its plan, and the plan."""
    values = {
        "inventory": run.inventory.to_record(),
        "heartbeat_port": run.plan.heartbeat_port,
        "placements": [
            (p.task.job, p.task.index, p.host, p.address, p.port, p.gpus, p.gpu_choice)
            for p in run.plan.placements
        ],
    }
    text = json.dumps(values)
    return f"{signature.sign(*_signed_texts(run.folder, record, text))}\n{text}"


def _signed_texts(folder: Path, record: RecordText, plan: str) -> tuple[str, ...]:
    return PLAN_FORMAT, str(folder), record.run_json, record.hosts_toml, plan


def _read_plan(record: RecordText, folder: Path, hosts_file: Path) -> tuple[Inventory, Plan] | None:
    """Return the inventory and the plan of a record; None unless this user has signed them."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        signed, _, text = _read(folder / PLAN).partition("\n")
        if signature.is_signed(signed, *_signed_texts(folder, record, text)):
            values = json.loads(text)
            placements = tuple(
                Placement(Task(job, index), host, address, port, tuple(gpus), tuple(choice))
                for job, index, host, address, port, gpus, choice in values["placements"]
            )
            inventory = Inventory.from_record(values["inventory"], hosts_file.absolute())
            return inventory, Plan(placements, values["heartbeat_port"])
    return None


def _read_record(folder: Path) -> RecordText:
    with suppress(FileNotFoundError, ValueError, TypeError, KeyError, RecursionError):
        values = json.loads(_read(folder / BOTH))
        return RecordText(str(values["run_json"]), str(values["hosts_toml"]))
    texts = _read(folder / "run.json"), _read(folder / "hosts.toml")
    if not all(texts):
        raise NoRecord(f"the record of run {folder.name} is broken: it is empty, {folder}")
    return RecordText(*texts)


def from_record(record: RecordText, folder: Path, hosts_file: Path) -> Run:
    """Return the run of a record that anybody may have written; `folder` is where it is, or will
    be, stored.

    Raises RunError, and InventoryError if its hosts are invalid.
    """
    from tfdeploy.config import inventory as inventories  # it loads Pydantic

    inventory = inventories.parse_record(record.hosts_toml, folder / "hosts.toml", hosts_file)
    plan = placing.make_plan_from_addresses(inventory)
    return _make_run(parse_run_json(record.run_json, folder), folder, inventory, plan)


def _from_texts(record: RecordText, folder: Path, hosts_file: Path) -> Run:
    planned = _read_plan(record, folder, hosts_file)
    if not planned:
        return from_record(record, folder, hosts_file)
    return _make_run(parse_run_json(record.run_json, folder), folder, *planned)


def _make_run(values: dict[str, Any], folder: Path, inventory: Inventory, plan: Plan) -> Run:
    return Run(
        id=folder.name,
        release=values["release"],
        agent=values["agent"],
        inventory=inventory,
        plan=plan,
        auto_ports=tuple(values["auto_ports"]),
        launched=values["launched"],
        data=values["data"],
        environments=values["environments"],
        by_id_only=values["by_id_only"],
        starts=values["starts"],
        name=values["name"],
        words=tuple(values["words"]),
        left_out=tuple(values["left_out"]),
        source=values["source"],
        written=values["written"],
    )


def started_again(run: Run) -> bool:
    """Return whether another command has started the run again since (resume, scale), by its record
    on the controller."""
    with suppress(OSError, TfdeployError):
        starts: int = run_json(run.folder)["starts"]
        return starts > run.starts
    return False


def delete_record(run: Run) -> None:
    """Delete the record of a run that did not start, so that an older one stays the default."""
    folder = run.open()
    for name in (PLAN, BOTH, "run.json", "hosts.toml"):
        folder.remove(name)
    if not folder.files():
        folder.delete()


def _named_run(base: Path, run: str) -> str:
    """Return the id of the newest run with this name, or else `run` itself: it is an id."""
    with suppress(OSError, ValueError):  # no file can have such a name
        if (base / run / "run.json").is_file():
            return run
    return next(iter(ids_by_name(base, run)), run)


def ids_by_name(base: Path, pattern: str) -> list[str]:
    """Return the ids of the runs with this name, the newest first. `base` is the folder runs/. A
    `*` in the pattern stands for any characters, as in a shell."""
    found = records(base)
    return [id_ for id_, v in found if v["name"] and fnmatchcase(v["name"], pattern)]


def hosts_files(base: Path) -> set[str]:
    """Return the names of the hosts files of the newest runs in `base`, the folder runs/."""
    return {str(values["hosts_file"]) for _, values in islice(records(base), 20)}


def records(base: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the id of each run and the content of its run.json, the newest run first."""
    for run_id in reversed(run_ids(base)):
        with suppress(RunError, OSError):  # a truncated record must not hide the others
            yield run_id, run_json(base / run_id)


def _newest_run(base: Path, hosts_file: Path) -> str:
    for run_id, values in records(base):
        if values["hosts_file"] == hosts_file.name and not values["by_id_only"]:
            return run_id
    raise NoRecord(f"no run was started from {hosts_file} yet", START_HINT)


def _newer_than(base: Path, run_id: str) -> tuple[str, ...]:
    return tuple(id_ for id_, _ in takewhile(lambda record: record[0] != run_id, records(base)))


def parse_run_json(text: str, folder: Path) -> dict[str, Any]:
    """Return the content of a run.json. Raises NoRecord if it is broken, or lacks a key."""
    file = folder / "run.json"
    try:
        values: dict[str, Any] = json.loads(text)
        parsed = {**values}
        for key in ("release", "agent", "hosts_file"):
            parsed[key] = _plain_name(parsed[key])
        parsed["auto_ports"] = [str(host) for host in parsed["auto_ports"]]
        parsed["words"] = [str(word) for word in parsed["words"]]
        parsed["left_out"] = [str(host) for host in parsed["left_out"]]
        parsed["name"] = parsed["name"] and _plain_name(parsed["name"])
        for key in ("source", "written"):
            parsed[key] = {str(name): str(text) for name, text in dict(parsed[key]).items()}
        for key in ("data", "environments"):
            parsed[key] = {str(name): _plain_name(id_) for name, id_ in dict(parsed[key]).items()}
        parsed["starts"], parsed["launched"] = int(parsed["starts"]), str(parsed["launched"])
        parsed["by_id_only"] = bool(parsed["by_id_only"])
        if not 0 <= parsed["starts"] <= MAX_STARTS:
            raise ValueError(parsed["starts"])
        return parsed
    except KeyError as missing:
        text = f"the record of run {folder.name} has no {missing}: {file}"
        raise NoRecord(text, OTHER_VERSION_HINT) from None
    except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError):
        raise NoRecord(f"the record of run {folder.name} is broken: {file}") from None


def _plain_name(value: Any) -> str:
    """Return a value that becomes part of a path. Raises ValueError if it could leave its folder,
    as in a record that somebody else wrote."""
    name = str(value)
    if name in ("", ".", "..") or not name.isprintable() or "/" in name:
        raise ValueError(name)
    return name


def run_json(folder: Path) -> dict[str, Any]:
    """Return the content of a run's run.json. Raises NoRecord if it is broken; OSError if there is
    none."""
    return parse_run_json(_read(folder / "run.json"), folder)


def _read(file: Path) -> str:
    return read_file(file, MAX_RECORD_BYTES).decode(errors="replace")
