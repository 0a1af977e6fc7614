"""What the {fields} of a command stand for in one task of a run. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfdeploy.errors import PlanError
from tfdeploy.planning import roles, trials

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdeploy.config.inventory import Inventory
    from tfdeploy.planning.plan import Placement, Plan


@dataclass(frozen=True)
class RunNames:
    """What names a run: its id, its release, the user's name for it ("" for none), the release of
    each data set by its place, and the environment of each host, if it has one."""

    run: str
    release: str
    name: str = ""
    data: Mapping[str, str] = field(default_factory=dict)
    environments: Mapping[str, str] = field(default_factory=dict)


def values_of(
    inventory: Inventory, plan: Plan, placement: Placement, names: RunNames
) -> dict[str, str]:
    """Return the value of every {field} for one task."""
    environment = names.environments.get(placement.host, "")
    python = inventory.host(placement.host).task_python(inventory.project, environment)
    values = {
        **roles.template_fields(plan, placement, inventory.training, python),
        **roles.data_fields(inventory, placement.task.job),
        "run": names.run,
        "release": names.release,
        "name": names.name or names.run,
    }
    params = trials.fields(inventory.trials)
    for name in params.keys() & values:
        raise PlanError(
            f"trials.params: {name} is the name of a {{field}} of commands",
            "give the option another name",
        )
    return {**values, **params}


def check_words(inventory: Inventory, plan: Plan, names: RunNames, words: Sequence[str]) -> None:
    """Raise PlanError for an unknown {field} in the words that the command line adds."""
    for placement in plan.placements if words else ():
        if getattr(inventory.training, placement.task.job).command is None:
            values = values_of(inventory, plan, placement, names)
            for word in words:
                roles.fill_template(word, values, f"-- {word}")
