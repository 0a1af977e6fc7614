"""`tfdeploy check`: would a start go well? Every host is looked at, and nothing is started."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfdeploy.agent.records import PROCESS
from tfdeploy.errors import AgentError, HostError, TaskNotReady, TfdeployError
from tfdeploy.fleet import errors_of
from tfdeploy.hostnames import folded
from tfdeploy.steps.roots import Roots
from tfdeploy.told import sound
from tfdeploy.words import duration, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tfdeploy.agent.records import Launch
    from tfdeploy.fleet import Fleet
    from tfdeploy.inventory import Host, Inventory
    from tfdeploy.plan import Placement, Plan
    from tfdeploy.remote import Agent
    from tfdeploy.session import Answer
    from tfdeploy.steps.plan import Intent

SURVEY_S = 240.0  # TensorFlow is imported there, and a driver may hang
DOORS_S = 20.0
KNOCK_S = 5.0
AHEAD_S = 5.0
ROOM = 1 << 30  # bytes, for checkpoints and logs
NEWS = "the run's own news"


@dataclass(frozen=True)
class Survey:
    """What a host has. `version` is its Python's; `tensorflow` its TensorFlow's, "" where that
    can't be imported because of `broken`; of the host's GPUs it sees `seen`; `gpus` are those that
    nvidia-smi names, by id; `root` names its directory; `ahead_s` is its clock against ours."""

    host: str
    version: str
    tensorflow: str
    broken: str
    seen: int
    gpus: Mapping[int, str]
    rsync: str
    root: str
    free_bytes: int
    ahead_s: float
    hindrances: tuple[tuple[str, str], ...]
    noted: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Doors:
    """What a host has opened: the `ports` by their tasks, and why others are `taken`. They are open
    for as long as `answers` may be heard."""

    answers: object
    ports: Mapping[str, int]
    taken: tuple[tuple[str, str], ...]


@dataclass
class Checked:
    """What was seen: `errors` would keep a start from going well, `notes` may matter."""

    surveys: tuple[Survey, ...] = ()
    errors: list[TfdeployError] = field(default_factory=list)
    notes: list[TfdeployError] = field(default_factory=list)


def check(fleet: Fleet, intent: Intent) -> Checked:
    """Ask every host what it has, and whether it reaches those that its tasks will talk to. Only
    the agent is put there. Raises nothing."""
    launches: dict[str, list[Launch]] = {host: [] for host in fleet.agents}
    for placement, launch in zip(intent.plan.placements, intent.launches(), strict=True):
        launches[placement.host].append(launch)
    outcomes = fleet.outcomes(
        fleet.agents, lambda agent: _surveyed(agent, intent.inventory, launches[agent.host])
    )
    checked = Checked(tuple(s for s in outcomes.values() if isinstance(s, Survey)))
    checked.errors += errors_of(outcomes)
    for survey in checked.surveys:
        host = intent.inventory.host(survey.host)
        _judge(checked, survey, host, launches[survey.host])
    _judge_together(checked, fleet)
    there = [survey.host for survey in checked.surveys]
    if fleet.stays_connected:
        checked.errors += _doors(fleet, intent, there)
    else:  # a door is open as long as its host's connection
        checked.notes.append(TfdeployError("ports are not tried on so many hosts"))
    return checked


def _by_python(launches: Sequence[Launch], host: Host) -> list[Launch]:
    """Those of a host's tasks that its `python` runs, those with GPUs first."""
    mine = [launch for launch in launches if launch.argv[0] == host.python]
    return sorted(mine, key=lambda launch: not launch.gpus)


def _gpus(launches: Sequence[Launch], host: Host) -> list[int]:
    """Those that tasks will have; all of a spare's, who may have to take any."""
    mine = (gpu for launch in launches for gpu in launch.gpus)
    return list(host.gpus) if host.spare else list(mine)


def _surveyed(agent: Agent, inventory: Inventory, launches: Sequence[Launch]) -> Survey:
    host = inventory.host(agent.host)
    some = next(iter([*_by_python(launches, host), *launches]), None)
    spare = {**inventory.training.variables("worker")[0], **host.env}
    body = {
        "python": host.python,
        "env": some.env if some else spare,
        "gpus": _gpus(launches, host),
        "programs": {x.task: [x.argv[0], x.env.get("PATH", "")] for x in launches},
    }
    told = agent.ask("survey", body, SURVEY_S)
    return sound(agent.host, lambda: _survey(agent.host, told, time.time()))


def _survey(host: str, told: Answer, now: float) -> Survey:
    found = told["tensorflow"]
    ahead_s = float(told["time"]) - now
    int(ahead_s)  # it is a number, and finite
    return Survey(
        host,
        str(told["version"]),
        str(found.get("version", "")),
        str(found.get("error", "")),
        int(found.get("gpus", 0)),
        {int(number): str(name) for number, name in told["gpus"].items()},
        str(told["rsync"]),
        str(told["here"]),
        int(told["free_bytes"]),
        ahead_s,
        _pairs(told["hindrances"]),
        _pairs(told["noted"]),
    )


def _pairs(told: Iterable[Sequence[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((str(message), str(hint)) for message, hint in told)


def _judge(checked: Checked, survey: Survey, host: Host, launches: Sequence[Launch]) -> None:
    """What a spare lacks keeps nothing from starting; nor does, where no task is run by `python`,
    what that lacks."""
    gpus, errors = _gpus(launches, host), checked.notes if host.spare else checked.errors
    broken = [*_without_tensorflow(survey, host), *_unseen_gpus(survey, host, gpus)]
    (errors if _by_python(launches, host) else checked.notes).extend(broken)
    errors += [AgentError(survey.host, *found) for found in survey.hindrances]
    errors += _missing_gpus(survey, gpus)
    checked.notes += _missing_gpus(survey, [gpu for gpu in host.gpus if gpu not in gpus])
    checked.notes += [AgentError(survey.host, *found) for found in survey.noted]
    checked.notes += [*_without_rsync(survey, host), *_idle_gpus(survey, host)]
    checked.notes += [*_odd_clock(survey), *_small_disk(survey)]


def _without_tensorflow(survey: Survey, host: Host) -> Iterator[HostError]:
    if not survey.tensorflow:
        yield AgentError(
            survey.host,
            f"{host.python} can't import TensorFlow: {survey.broken}",
            "install it there, or set the host's python to one that has it",
        )


def _unseen_gpus(survey: Survey, host: Host, gpus: Sequence[int]) -> Iterator[HostError]:
    there = sum(gpu in survey.gpus for gpu in gpus)
    if survey.tensorflow and survey.seen < there:
        yield AgentError(
            survey.host,
            f"of its {there} GPUs TensorFlow {survey.tensorflow} sees {survey.seen}",
            "is it built for GPUs, and does it find CUDA's libraries? "
            f"{host.python} -m pip install 'tensorflow[and-cuda]' brings them",
        )


def _missing_gpus(survey: Survey, gpus: Sequence[int]) -> Iterator[HostError]:
    missing = [gpu for gpu in gpus if gpu not in survey.gpus]
    if missing:
        yield AgentError(
            survey.host,
            f"hosts.toml gives it GPU {missing[0]}, and nvidia-smi lists {len(survey.gpus)}",
            "correct the host's gpus",
        )


def _without_rsync(survey: Survey, host: Host) -> Iterator[HostError]:
    if not survey.rsync and not host.is_local:
        yield AgentError(
            survey.host, "rsync is not installed there", "files from 8 MiB on go by it, either way"
        )


def _idle_gpus(survey: Survey, host: Host) -> Iterator[HostError]:
    if survey.gpus and not host.gpus and host.workers:
        yield AgentError(
            survey.host,
            f"hosts.toml says nothing of its {len(survey.gpus)} GPUs, so its tasks see none",
            f"gpus = {len(survey.gpus)} gives them to its workers",
        )


def _odd_clock(survey: Survey) -> Iterator[HostError]:
    if abs(survey.ahead_s) > AHEAD_S:
        which = "ahead of" if survey.ahead_s > 0 else "behind"
        by = duration(abs(survey.ahead_s))
        yield AgentError(
            survey.host,
            f"its clock is {by} {which} this machine's",
            "tfdeploy compares no clocks; the times in its logs and events are off",
        )


def _small_disk(survey: Survey) -> Iterator[HostError]:
    if survey.free_bytes < ROOM:
        yield AgentError(
            survey.host,
            f"only {size(survey.free_bytes)} are free where its directory lies",
            "tfdeploy prune makes room there; or set its directory to another disk",
        )


def _judge_together(checked: Checked, fleet: Fleet) -> None:
    with Roots() as roots:
        for survey in checked.surveys:
            try:
                roots.claim(fleet.agents[survey.host], survey.root)
            except TfdeployError as error:
                checked.errors.append(error)
    have = {s.host: s.tensorflow for s in checked.surveys if s.tensorflow}
    checked.notes += _unlike("TensorFlow", have)
    pythons = {s.host: ".".join(s.version.split(".")[:2]) for s in checked.surveys}
    checked.notes += _unlike("Python", pythons)


def _unlike(what: str, have: Mapping[str, str]) -> Iterator[HostError]:
    """Those who have another version than most."""
    if not have:
        return
    [(usual, _)] = Counter(have.values()).most_common(1)
    others = folded(host for host, version in have.items() if version == usual)
    for host, version in have.items():
        if version != usual:
            hint = f"what {usual} writes, {version} may not read: have one everywhere"
            yield AgentError(host, f"it has {what} {version}, and {usual} is on {others}", hint)


def _doors(fleet: Fleet, intent: Intent, there: Sequence[str]) -> list[TfdeployError]:
    """Every port that the run will need is opened by its host, and knocked at by the others."""
    hosts = [host for host in intent.plan.hosts if host in there]
    with ExitStack() as opened:

        def open_one(agent: Agent) -> Doors:
            wanted = {"wanted": _wanted(intent.plan, agent.host)}
            followed = agent.answers("doors", wanted, DOORS_S)
            opened.callback(followed.close)  # hangs up, and the host shuts them
            answers = iter(followed)
            told = next(answers)
            return sound(agent.host, lambda: _opened(answers, told))

        outcomes = fleet.outcomes(hosts, open_one)
        doors = {h: o for h, o in outcomes.items() if not isinstance(o, TfdeployError)}
        errors = errors_of(outcomes)
        errors += [AgentError(h, *no) for h, each in doors.items() for no in each.taken]
        knocked = fleet.outcomes(doors, lambda agent: _knocked(agent, intent, doors))
    errors += errors_of(knocked)
    silent: dict[tuple[str, Placement], dict[str, str]] = {}
    for host, answers in knocked.items():
        if not isinstance(answers, TfdeployError):
            for door, detail in answers.items():
                silent.setdefault(door, {})[host] = detail
    return [*errors, *(_closed(name, to, who) for (name, to), who in silent.items())]


def _opened(answers: object, told: Answer) -> Doors:
    ports = {str(task): int(port) for task, port in told["open"].items()}
    if not all(0 < port < 1 << 16 for port in ports.values()):
        raise ValueError
    return Doors(answers, ports, _pairs(told["taken"]))


def _wanted(plan: Plan, host: str) -> dict[str, int]:
    wanted = {str(p.task): p.port for p in plan.on(host) if p.port is not None}
    return wanted | ({NEWS: plan.beacon_port} if host == plan.chief.host else {})


def _knocked(
    agent: Agent, intent: Intent, doors: Mapping[str, Doors]
) -> dict[tuple[str, Placement], str]:
    """Which of the doors that its tasks will need it doesn't reach, and why."""
    plan = intent.plan
    needed = [(str(p.task), p) for p in plan.dialled_from(agent.host)]
    if intent.inventory.training.ready == PROCESS:
        needed = []  # nobody waits for their ports
    if agent.host != plan.chief.host:
        needed.append((NEWS, plan.chief))
    known = [(n, to) for n, to in needed if to.host in doors and n in doors[to.host].ports]
    at = [{"address": to.address, "port": doors[to.host].ports[name]} for name, to in known]
    if not at:
        return {}
    told = agent.ask("knock", {"at": at, "timeout_s": KNOCK_S})
    answers = sound(agent.host, lambda: dict(zip(known, map(str, told["answers"]), strict=True)))
    return {door: why for door, why in answers.items() if why}


def _closed(name: str, to: Placement, who: Mapping[str, str]) -> TaskNotReady:
    hosts, detail = folded(who), next(iter(who.values()))
    return TaskNotReady(
        str(to.task),
        to.host,
        f"{hosts} can't reach {to.host} at {to.address}, on the port of {name}: {detail}",
        f"is a firewall between them? is hosts.{to.host}.address what {hosts} can dial?",
    )
