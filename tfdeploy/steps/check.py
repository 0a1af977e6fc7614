"""`tfdeploy check`: would a start go well? Every host is looked at, and nothing is started."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfdeploy.errors import AgentError, HostError, TfdeployError
from tfdeploy.fleet import errors_of
from tfdeploy.hostnames import folded
from tfdeploy.steps.doors import closed, pairs
from tfdeploy.steps.roots import Roots
from tfdeploy.told import sound
from tfdeploy.words import duration, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfdeploy.agent.records import Launch
    from tfdeploy.fleet import Fleet
    from tfdeploy.inventory import Host, Inventory
    from tfdeploy.remote import Agent
    from tfdeploy.session import Answer
    from tfdeploy.steps.plan import Intent

SURVEY_S = 240.0  # TensorFlow is imported there, and a driver may hang
AHEAD_S = 5.0
ROOM = 1 << 30  # bytes, for checkpoints and logs


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
        checked.errors += closed(fleet, intent, there)
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
        pairs(told["hindrances"]),
        pairs(told["noted"]),
    )


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
