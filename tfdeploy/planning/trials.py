"""Trials: trainings with other parameters, each a run of the command in a slot of a host. Pure.

A run of trials is a run like any other. Its tasks are slots: workers without a port, which run one
trial after the other. The points of [trials] are its trials: the parameters of each, by number.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import re
from typing import TYPE_CHECKING, Any

from tfdeploy.config.cluster import JOBS
from tfdeploy.errors import PlanError
from tfdeploy.planning.placing import gpus_per_task
from tfdeploy.shared.protocol.record import replace
from tfdeploy.shared.records import TrialSettings, parameter_mark

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tfdeploy.config.inventory import Host, Inventory, Training
    from tfdeploy.config.models import Trials
    from tfdeploy.shared.records import Launch

MAX_TRIALS = 10_000
REPEAT = "repeat"  # the parameter that numbers the repetitions of a combination
RANGE = re.compile(r"([-+]?\.?\d[-+.\deE]*?)\.\.(.*?)(:log)?")


def parse_params(texts: Sequence[str]) -> dict[str, Any]:
    """Return the parameters of texts such as "lr=0.1,0.01" and "lr=1e-4..0.1:log", as [trials] has
    them. Raises PlanError."""
    params: dict[str, Any] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not name or "" in values.split(","):
            raise PlanError(
                f'--param: found "{text}"; expected NAME=VALUE,VALUE… or NAME=FROM..TO[:log]'
            )
        if name in params:
            raise PlanError(f"--param: found {name} twice; expected it once, with all its values")
        found = RANGE.fullmatch(values)
        params[name] = _parse_range(text, *found.groups()) if found else values.split(",")
    return params


def _parse_range(text: str, low: str, high: str, log: str | None) -> dict[str, Any]:
    try:
        numbers: list[Any] = [_number(each) for each in (low, high)]
    except ValueError:
        raise PlanError(f'--param: found "{text}"; expected two numbers in a range') from None
    return {"from": numbers[0], "to": numbers[1], "log": bool(log)}


def _number(text: str) -> int | float:
    return int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)


def with_trials(inventory: Inventory) -> Inventory:
    """Return the inventory of a run of trials: with its points, and with slots instead of tasks.
    Raises PlanError."""
    trials = inventory.trials
    points = trials.points or tuple(_points(trials))
    if not points:
        raise PlanError(
            "found no trials", "tfdeploy trials --param lr=0.1,0.01, or [trials] in hosts.toml"
        )
    if len(points) > MAX_TRIALS:
        raise PlanError(
            f"trials: found {len(points):,}; expected at most {MAX_TRIALS:,}",
            "--random 100 draws 100 of them",
        )
    hosts = tuple(_with_slots(host, trials) for host in inventory.hosts)
    training = inventory.training.copy_with({"replicas": 0})
    changes = {"hosts": hosts, "training": training, "trials": trials.copy_with({"points": points})}
    return inventory.copy_with(changes)


def _with_slots(host: Host, trials: Trials) -> Host:
    """Return the host with a worker for each slot: by default for each GPU, or one without any. A
    host without tasks has no slots."""
    has_tasks = host.workers or host.ps or host.chief or host.evaluator
    per_slot = gpus_per_task("worker", host)
    by_gpus = len(host.gpus) // per_slot if per_slot else 1
    slots = trials.slots_per_host or by_gpus
    no_others = {"ps": 0, "chief": False, "evaluator": False}
    return host.copy_with({**no_others, "workers": slots if has_tasks or host.spare else 0})


def _points(trials: Trials) -> Iterator[dict[str, str]]:
    """Yield the parameters of each trial. Equal tables give equal points."""
    combinations = _drawn(trials) if trials.random else _grid(trials.params)
    for combination in combinations if trials.params else ():
        for number in range(trials.repeat):
            repeat = {REPEAT: str(number)} if trials.repeat > 1 else {}
            yield {**{name: _text(v) for name, v in combination.items()}, **repeat}


def _grid(params: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name, values in params.items():
        if isinstance(values, dict):
            raise PlanError(f"{name} is a range: expected --random N", "--random 20 draws 20")
    if math.prod(map(len, params.values())) > MAX_TRIALS:
        raise PlanError(
            f"the lists have more than {MAX_TRIALS:,} combinations", "--random 100 draws 100"
        )
    for values in itertools.product(*params.values()):
        yield dict(zip(params, values, strict=True))


def _drawn(trials: Trials) -> Iterator[dict[str, Any]]:
    """Yield random combinations, of lists alone each at most once."""
    chance, params, count = random.Random(trials.seed), trials.params, trials.random or 0
    lists = [values for values in params.values() if isinstance(values, list)]
    total = math.prod(map(len, lists))
    if len(lists) == len(params) and total <= MAX_TRIALS:
        yield from chance.sample(list(_grid(params)), min(count, total))
        return
    for _ in range(count):
        yield {name: _draw(chance, values) for name, values in params.items()}


def _draw(chance: random.Random, values: Any) -> Any:
    if isinstance(values, list):
        return chance.choice(values)
    low, high = values["from"], values["to"]
    is_whole = isinstance(low, int) and isinstance(high, int)
    if values.get("log"):
        drawn = math.exp(chance.uniform(math.log(low), math.log(high)))
        return min(high, max(low, round(drawn))) if is_whole else _short(drawn)
    return chance.randint(low, high) if is_whole else _short(chance.uniform(low, high))


def _short(number: float) -> float:
    return float(f"{number:.6g}")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def fields(trials: Trials) -> dict[str, str]:
    """Return the {field} of each parameter; a host replaces its value when it starts a trial."""
    return {name: parameter_mark(name) for name in trials.points[0]}


def flags(inventory: Inventory) -> list[str]:
    """Return the words `--name=value` for the parameters that no template of hosts.toml names."""
    texts = [*_templates(inventory.training)]
    return [
        f"--{name}={mark}"
        for name, mark in fields(inventory.trials).items()
        if name != REPEAT and not any(f"{{{name}}}" in text for text in texts)
    ]


def _templates(training: Training) -> Iterator[str]:
    for job in JOBS:
        command, words = training.command_and_args(job)
        yield from (*command, *words, *training.env_and_role_env(job)[1].values())
    yield from training.role_files.values()


def environment(trials: Trials) -> dict[str, str]:
    """Return the variable that numbers a trial."""
    return {"TFDEPLOY_TRIAL": parameter_mark()}


def in_slot(launch: Launch, inventory: Inventory) -> Launch:
    """Return the launch of a slot: with the parameters of its trials, and what it needs to run
    them."""
    found = inventory.trials
    objective, mode = found.goal
    settings = TrialSettings([*found.points], objective, mode, found.stop_bad, found.attempts)
    process = replace(
        launch.process,
        argv=[*launch.process.argv, *flags(inventory)],
        env={**launch.process.env, **environment(found)},
    )
    return replace(launch, process=process, trials=settings)
