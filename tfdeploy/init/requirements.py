"""Choose what [env] has: a file of the project, or packages with versions that fit all hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.environments import packages, pins, spec, tensorflow_rule, wheelhouse
from tfdeploy.errors import PlanError, TfdeployError
from tfdeploy.init import environment
from tfdeploy.init.environment import FoundRequirements

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfdeploy.config.inventory import Inventory
    from tfdeploy.init.machine import Machine
    from tfdeploy.init.program import Program

LEGACY_KERAS = "tf_keras"


def choose(
    program: Program, machines: Sequence[Machine], *, legacy_keras: bool
) -> FoundRequirements | None:
    """Return the requirements for these machines; None if they have all that the program needs."""
    if not environment.reason(program.packages, machines):
        return None
    if program.requirements:
        return FoundRequirements(program.requirements)
    names = (*program.packages, *((LEGACY_KERAS,) if legacy_keras else ()))
    hosts = [(_platform(machine), bool(machine.gpus)) for machine in machines]
    try:
        return FoundRequirements(tuple(pins.pin(names, hosts)))
    except wheelhouse.NoWheels as reason:
        return FoundRequirements(names, str(reason))


def lacking(
    program: Program, inventory: Inventory, machines: Sequence[Machine]
) -> Iterator[TfdeployError]:
    """Yield a note for each package that the program needs and that the project's own file does
    not bring, also not through others. Yields nothing if that is unknown, as without a network."""
    if not (inventory.env and inventory.env.requirements == program.requirements):
        return
    machine = machines[0]
    try:
        own = spec.for_hosts(inventory)[machine.name]
        brought = {} if own.locked else wheelhouse.versions(own.lines, _platform(machine))
    except PlanError as error:
        yield error
        return
    except wheelhouse.NoWheels:
        return
    for name, (path, each) in packages.find(program.files).items():
        installed = tensorflow_rule.apply(name, has_gpus=bool(machine.gpus))
        if brought and pins.normalized(installed) not in brought:
            words = f"{program.requirements} brings no {name}, which {path} imports in line "
            yield TfdeployError(f"{words}{each.line}", f"add to {program.requirements}: {name}")


def _platform(machine: Machine) -> wheelhouse.WheelTarget:
    python = ".".join(machine.python_version.split(".")[:2])
    return wheelhouse.WheelTarget(python, machine.architecture, machine.libc)
