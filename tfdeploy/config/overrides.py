"""What the command line says for one run: words for the program, variables, counts, a name, and
how long to wait."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from tfdeploy.config import WORKER_VARIABLES
from tfdeploy.config.cluster import JOBS
from tfdeploy.config.models import Host, JobTraining, Training, Trials
from tfdeploy.config.types import Environment
from tfdeploy.errors import InventoryError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tfdeploy.config.inventory import Inventory


T = TypeVar("T", Host, JobTraining, Training)
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
RUN_ID = re.compile(r"[0-9]{8}-[0-9]{6}-.*")
COUNT_KEYS = ("ps", "workers")
MAX_COUNT = 1024
ROLE_VARIABLES = {"environment": ("JOB_NAME", "TASK_INDEX", "CLUSTER_SPEC"), **WORKER_VARIABLES}


def override(inventory: Inventory, words: Sequence[str], variables: Sequence[str]) -> Inventory:
    """Return the inventory with `words` at the end of training.command, and with the `variables`,
    each written NAME=VALUE, in the environment of every task.

    A job with a command of its own runs another program, which does not get the words. Raises
    InventoryError.
    """
    training, added = inventory.training, _parse(variables)
    _refuse_other_sources(training, added)
    if words:
        training = training.copy_with({"command": (*training.command, *words)})
    if added:
        jobs = {job: _without(getattr(training, job), added) for job in JOBS}
        env = {**training.env, **added}
        training = _without(training, added).copy_with({**jobs, "env": env})
    hosts = tuple(_without(host, added) for host in inventory.hosts)
    return inventory.copy_with({"training": training, "hosts": hosts})


def override_trials(inventory: Inventory, values: Mapping[str, Any]) -> Inventory:
    """Return the inventory with these keys of [trials]. Raises InventoryError."""
    from tfdeploy.config.schema import validate

    try:
        trials = validate(Trials, {**inventory.trials.to_values(), **values})
    except ValidationError as error:
        detail = error.errors()[0]
        reason = detail.get("ctx", {}).get("error", detail["msg"])
        flags = "".join(f"--{str(key).replace('_', '-')}: " for key in detail["loc"][:1])
        raise InventoryError(f"{flags.replace('--params', '--param')}{reason}") from None
    return inventory.copy_with({"trials": trials})


def with_shared_gpus(inventory: Inventory) -> Inventory:
    """Return the inventory with GPUs that foreign processes may use, too."""
    hosts = tuple(host.copy_with({"gpus_shared": True}) for host in inventory.hosts)
    return inventory.copy_with({"hosts": hosts})


def check_words(name: str, words: Sequence[str]) -> tuple[str, ...]:
    """Return a list of words that a program passes as its argument `name`. Raises InventoryError
    for one text, which Python would split into its characters, and for what is no text."""
    if isinstance(words, str):
        raise InventoryError(f'{name}: found "{words}"; expected a list, such as {words.split()}')
    for word in words:
        if not isinstance(word, str):
            raise InventoryError(f'{name}: found {word!r}; expected text, such as "{word}"')
    return tuple(words)


def parse_counts(texts: Iterable[str], flag: str) -> dict[str, int]:
    """Return the numbers in texts such as "ps=2,workers=8". Raises InventoryError."""
    counts: dict[str, int] = {}
    for entry in (part.strip() for text in texts for part in text.split(",")):
        key, _, number = entry.partition("=")
        if key not in COUNT_KEYS or not number.isdecimal() or int(number) > MAX_COUNT:
            raise InventoryError(
                f'{flag}: found "{entry}"; expected ps=COUNT or workers=COUNT, up to {MAX_COUNT}',
                "separate them with commas: ps=2,workers=8",
            )
        if key in counts:
            raise InventoryError(f"{flag}: {key} occurs twice; expected it once")
        counts[key] = int(number)
    return counts


def check_run_name(name: str) -> str:
    """Return the name of a run if it can be one. Raises InventoryError."""
    if not RUN_NAME.fullmatch(name):
        raise InventoryError(
            f'--name: found "{name}"; expected letters, digits, ".", "_" and "-", first a letter '
            "or a digit"
        )
    if RUN_ID.fullmatch(name):
        raise InventoryError(f'--name: found "{name}", which looks like the id of a run')
    return name


def _refuse_other_sources(training: Training, added: Collection[str]) -> None:
    role = set(ROLE_VARIABLES.get(training.role, ()))
    is_environment = training.role == "environment"
    for name in added:
        if name in training.secrets:
            raise InventoryError(f"--env: {name} is one of training.secrets; export it instead")
        if name in role or (is_environment and name.endswith("_HOSTS")):
            raise InventoryError(f'--env: role = "{training.role}" sets {name}; leave it out')


def _without(table: T, names: Collection[str]) -> T:
    """Return a table without these variables: the value that it has would override another one."""
    update = {
        key: {name: value for name, value in getattr(table, key).items() if name not in names}
        for key in ("env", "role_env")
        if any(name in getattr(table, key, ()) for name in names)
    }
    return table.copy_with(update) if update else table


def _parse(variables: Sequence[str]) -> dict[str, str]:
    if not variables:
        return {}
    added = {}
    for written in variables:
        name, equals, value = written.partition("=")
        if not equals:
            raise InventoryError(f'--env: found "{written}"; expected NAME=VALUE')
        added[name] = value
    try:
        checked: dict[str, str] = TypeAdapter(Environment).validate_python(added)
    except ValidationError as error:
        reason = error.errors()[0].get("ctx", {}).get("error", "expected NAME=VALUE")
        raise InventoryError(f"--env: {reason}") from None
    return checked


DURATION = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhd])"
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_wait(written: str) -> float:
    """Return the seconds of --wait: infinity for "forever". Raises InventoryError."""
    match = re.fullmatch(DURATION, written)
    if written == "forever":
        return math.inf
    if not match:
        raise InventoryError(
            f'--wait: found "{written}"; expected a duration such as 90s, 30m or 1h, or forever'
        )
    return float(match[1]) * SECONDS[match[2]]
