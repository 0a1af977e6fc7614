"""What the command line adds to hosts.toml for one run: words for the program, and variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic import TypeAdapter, ValidationError

from tfdeploy.cluster import JOBS
from tfdeploy.config.models import Host, JobTraining
from tfdeploy.config.types import Environment
from tfdeploy.errors import InventoryError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tfdeploy.config.inventory import Inventory

T = TypeVar("T", Host, JobTraining)


def override(inventory: Inventory, words: Sequence[str], variables: Sequence[str]) -> Inventory:
    """Return the inventory with `words` at the end of training.command, and with the `variables`,
    each written NAME=VALUE, in the environment of every task.

    A job with a command of its own runs another program, which does not get the words. Raises
    InventoryError.
    """
    training, added = inventory.training, _parse(variables)
    if words:
        training = training.model_copy(update={"command": (*training.command, *words)})
    if added:
        jobs = {job: _without(getattr(training, job), added) for job in JOBS}
        env = {**training.env, **added}
        training = training.model_copy(update={**jobs, "env": env})
    hosts = tuple(_without(host, added) for host in inventory.hosts)
    return inventory.model_copy(update={"training": training, "hosts": hosts})


def _without(table: T, names: Collection[str]) -> T:
    """Return a table without these variables: the value that it has would override another one."""
    if not any(name in table.env for name in names):
        return table
    env = {name: value for name, value in table.env.items() if name not in names}
    return table.model_copy(update={"env": env})


def _parse(variables: Sequence[str]) -> dict[str, str]:
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
