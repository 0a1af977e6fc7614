"""Turn [notify] into what the chief's supervisor needs at the end of the run. Pure."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from tfdeploy.errors import PlanError
from tfdeploy.planning.checks import PYTHON_WORDS
from tfdeploy.shared import records

if TYPE_CHECKING:
    from tfdeploy.config.inventory import Inventory
    from tfdeploy.planning.plan import Plan

FIELD = re.compile(r"\{(\w+)\}")
DEFAULT_FILE = "hosts.toml"


def notify(inventory: Inventory, plan: Plan, run: str, name: str) -> records.Notify:
    """Return the order for the chief of the run with this id and name. Raises PlanError if a URL
    has a {NAME} that is not one of training.secrets."""
    file = inventory.file.name
    hosts = "" if file == DEFAULT_FILE else f"--hosts {shlex.quote(file)} "
    return records.Notify(
        on_end=_target(inventory, plan, "on_end"),
        on_failure=_target(inventory, plan, "on_failure"),
        hosts={str(p.task): p.host for p in plan.placements},
        flags=f"{hosts}--run {run}",
        name=name,
    )


def _target(inventory: Inventory, plan: Plan, key: str) -> list[str]:
    """Return a command with the python of the chief's host, or a URL as it is written."""
    first, *rest = getattr(inventory.notify, key) or ("",)
    if records.is_url([first, *rest]):
        _check_fields(inventory, first, key)
    elif first in PYTHON_WORDS:
        first = inventory.host(plan.chief.host).python
    return [first, *rest] if first else []


def _check_fields(inventory: Inventory, url: str, key: str) -> None:
    secrets = inventory.training.secrets
    for name in FIELD.findall(url):
        if name not in secrets:
            raise PlanError(
                f"notify.{key}: unknown field {{{name}}}; expected one of training.secrets",
                f"add it: secrets = {[*secrets, name]} under [training]".replace("'", '"'),
            )
