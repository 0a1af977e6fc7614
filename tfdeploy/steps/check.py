"""`tfdeploy check`: would a start go well? Every host is looked at, and nothing is started."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfdeploy.errors import AgentError, HostError, TaskNotReady, TfdeployError
from tfdeploy.fleet import errors_of
from tfdeploy.hostnames import folded
from tfdeploy.steps.push import refusal_of_shared
from tfdeploy.words import duration, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tfdeploy.fleet import Fleet
    from tfdeploy.inventory import Host
    from tfdeploy.plan import Placement, Plan
    from tfdeploy.remote import Agent
    from tfdeploy.steps.plan import Intent

SURVEY_S = 180.0  # TensorFlow is imported there
DOORS_S = 20.0
KNOCK_S = 5.0
AHEAD_S = 5.0
ROOM = 1 << 30  # bytes, for checkpoints and logs
NEWS = "the run's own news"


@dataclass(frozen=True)
class Survey:
    """What a host has. `tensorflow` is its version, "" where it can't be imported because of
    `broken`; of the `gpus` that nvidia-smi names it sees `seen`; `root` names its directory;
    `ahead_s` is its clock against ours."""

    host: str
    python: str
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


@dataclass
class Checked:
    """What was seen: `errors` would keep a start from going well, `notes` may matter."""

    surveys: tuple[Survey, ...] = ()
    errors: list[TfdeployError] = field(default_factory=list)
    notes: list[TfdeployError] = field(default_factory=list)


def check(fleet: Fleet, intent: Intent) -> Checked:
    """Ask every host what it has, and whether it reaches those that its tasks will talk to. Only
    the agent is put there. Raises nothing."""
    outcomes = fleet.outcomes(fleet.agents, lambda agent: _surveyed(agent, intent))
    checked = Checked(tuple(s for s in outcomes.values() if isinstance(s, Survey)))
    checked.errors += errors_of(outcomes)
    _judge_each(checked, intent)
    _judge_together(checked, intent, fleet)
    there = [survey.host for survey in checked.surveys]
    checked.errors += _doors(fleet, intent.plan, there)
    return checked


def _surveyed(agent: Agent, intent: Intent) -> Survey:
    host = intent.inventory.host(agent.host)
    env = {**intent.inventory.training.env, **host.env}
    told = agent.ask("survey", {"env": env, "gpus": list(host.gpus)}, SURVEY_S)
    ahead_s = told.get("time", 0) - time.time()
    found = told.get("tensorflow", {})
    try:
        return Survey(
            agent.host,
            str(told["python"]),
            str(found.get("version", "")),
            str(found.get("error", "")),
            int(found.get("gpus", 0)),
            {int(number): str(name) for number, name in told["gpus"].items()},
            str(told["rsync"]),
            str(told["here"]),
            int(told["free_bytes"]),
            float(ahead_s),
            _pairs(told["hindrances"]),
            _pairs(told["noted"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise AgentError(agent.host, "what it says of itself makes no sense") from None


def _pairs(told: Iterable[Sequence[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((str(message), str(hint)) for message, hint in told)


def _judge_each(checked: Checked, intent: Intent) -> None:
    programs = {launch.task: launch.argv[0] for launch in intent.launches()}
    for survey in checked.surveys:
        host = intent.inventory.host(survey.host)
        tasks = intent.plan.on(survey.host)
        runs_python = not tasks or any(programs[str(p.task)] == host.python for p in tasks)
        broken = [*_without_tensorflow(survey, host), *_unseen_gpus(survey, host)]
        (checked.errors if runs_python else checked.notes).extend(broken)
        checked.errors += [AgentError(survey.host, *found) for found in survey.hindrances]
        checked.errors += [*_missing_gpus(survey, host), *_without_rsync(survey)]
        checked.notes += [AgentError(survey.host, *found) for found in survey.noted]
        checked.notes += [*_idle_gpus(survey, host), *_odd_clock(survey), *_small_disk(survey)]


def _without_tensorflow(survey: Survey, host: Host) -> Iterator[HostError]:
    if not survey.tensorflow:
        yield AgentError(
            survey.host,
            f"{host.python} can't import TensorFlow: {survey.broken}",
            "install it there, or set the host's python to one that has it",
        )


def _unseen_gpus(survey: Survey, host: Host) -> Iterator[HostError]:
    if survey.tensorflow and host.gpus and survey.seen < len(survey.gpus):
        yield AgentError(
            survey.host,
            f"nvidia-smi lists {len(survey.gpus)} GPUs, "
            f"TensorFlow {survey.tensorflow} sees {survey.seen}",
            "is it built for GPUs, and does it find CUDA's libraries? "
            f"{host.python} -m pip install 'tensorflow[and-cuda]' brings them",
        )


def _missing_gpus(survey: Survey, host: Host) -> Iterator[HostError]:
    missing = [gpu for gpu in host.gpus if gpu not in survey.gpus]
    if missing:
        yield AgentError(
            survey.host,
            f"hosts.toml gives it GPU {missing[0]}, and nvidia-smi lists {len(survey.gpus)}",
            "correct the host's gpus",
        )


def _without_rsync(survey: Survey) -> Iterator[HostError]:
    if not survey.rsync:
        yield AgentError(survey.host, "rsync is not installed there", "large files go by it")


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


def _judge_together(checked: Checked, intent: Intent, fleet: Fleet) -> None:
    owners: dict[str, str] = {}
    for survey in checked.surveys:
        first = owners.setdefault(survey.root, survey.host)
        if first != survey.host:
            checked.errors.append(refusal_of_shared(fleet.agents[survey.host], first))
    have = {s.host: s.tensorflow for s in checked.surveys if s.tensorflow}
    checked.notes += _unlike("TensorFlow", have)
    pythons = {s.host: ".".join(s.python.split(".")[:2]) for s in checked.surveys}
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


def _doors(fleet: Fleet, plan: Plan, there: Sequence[str]) -> list[TfdeployError]:
    """Every port that the run will need is opened by its host, and knocked at by the others."""
    hosts = [host for host in plan.hosts if host in there]
    with ExitStack() as opened:

        def open_one(agent: Agent) -> dict[str, Any]:
            answers = iter(agent.answers("doors", {"wanted": _wanted(plan, agent.host)}, DOORS_S))
            opened.callback(answers.close)  # hangs up, and the host shuts them
            return next(answers)

        outcomes = fleet.outcomes(hosts, open_one)
        told = {h: o for h, o in outcomes.items() if not isinstance(o, TfdeployError)}
        errors = errors_of(outcomes)
        errors += [AgentError(h, *no) for h, o in told.items() for no in _pairs(o["taken"])]
        ports = {h: o["open"] for h, o in told.items()}
        knocked = fleet.outcomes(ports, lambda agent: _knocked(agent, plan, ports))
    errors += errors_of(knocked)
    silent: dict[tuple[str, Placement], dict[str, str]] = {}
    for host, answers in knocked.items():
        if not isinstance(answers, TfdeployError):
            for door, detail in answers.items():
                silent.setdefault(door, {})[host] = detail
    return [*errors, *(_closed(name, to, who) for (name, to), who in silent.items())]


def _wanted(plan: Plan, host: str) -> dict[str, int]:
    wanted = {str(p.task): p.port for p in plan.on(host) if p.port is not None}
    return wanted | ({NEWS: plan.beacon_port} if host == plan.chief.host else {})


def _knocked(
    agent: Agent, plan: Plan, ports: Mapping[str, Mapping[str, int]]
) -> dict[tuple[str, Placement], str]:
    """Which of the doors that its tasks will need it doesn't reach, and why."""
    doors = [(str(p.task), p) for p in plan.dialled_from(agent.host)]
    if agent.host != plan.chief.host:
        doors.append((NEWS, plan.chief))
    known = [(name, to) for name, to in doors if name in ports.get(to.host, {})]
    at = [{"address": to.address, "port": ports[to.host][name]} for name, to in known]
    answers = agent.ask("knock", {"at": at, "timeout_s": KNOCK_S})["answers"] if at else []
    return {door: str(why) for door, why in zip(known, answers, strict=True) if why}


def _closed(name: str, to: Placement, who: Mapping[str, str]) -> TaskNotReady:
    hosts, detail = folded(who), next(iter(who.values()))
    return TaskNotReady(
        str(to.task),
        to.host,
        f"{hosts} can't reach {to.host} at {to.address}, on the port of {name}: {detail}",
        f"is a firewall between them? is hosts.{to.host}.address what {hosts} can dial?",
    )
