"""Choose what [env] has: a file of the project, or packages with versions that fit the Pythons and
the platforms of all hosts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdeploy.environments import packages, spec, wheelhouse
from tfdeploy.errors import PlanError, TfdeployError
from tfdeploy.init.document import FoundRequirements
from tfdeploy.init.machine import missing_packages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tfdeploy.config.inventory import Inventory
    from tfdeploy.environments.wheelhouse import WheelTarget
    from tfdeploy.init.machine import Machine
    from tfdeploy.init.program import Program

LEGACY_KERAS = "tf_keras"


def choose(
    program: Program, machines: Sequence[Machine], *, legacy_keras: bool
) -> FoundRequirements | None:
    """Return the requirements for these machines; None if they have all that the program needs."""
    if not missing_packages(program, machines):
        return None
    if program.requirements:
        return FoundRequirements(program.requirements)
    names = (*program.packages, *((LEGACY_KERAS,) if legacy_keras else ()))
    hosts = [(_platform(machine), bool(machine.gpus)) for machine in machines]
    try:
        return FoundRequirements(tuple(pin(names, hosts)))
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
        installed = spec.apply_tensorflow_rule(name, has_gpus=bool(machine.gpus))
        if brought and normalized(installed) not in brought:
            words = f"{program.requirements} brings no {name}, which {path} imports in line "
            yield TfdeployError(f"{words}{each.line}", f"add to {program.requirements}: {name}")


def _platform(machine: Machine) -> wheelhouse.WheelTarget:
    python = ".".join(machine.python_version.split(".")[:2])
    return wheelhouse.WheelTarget(python, machine.architecture, machine.libc)


def pin(packages: Sequence[str], hosts: Iterable[tuple[WheelTarget, bool]]) -> list[str]:
    """Return requirements with the versions of these packages; `hosts` are platforms, and whether
    they have GPUs. A package that has no common version stays as it is. Raises NoWheels if the
    versions can't be found, for example without a network."""
    found = [
        _chosen([spec.apply_tensorflow_rule(name, has_gpus=gpus) for name in packages], target)
        for target, gpus in dict.fromkeys(hosts)
    ]
    common = [{*versions} for versions in zip(*found, strict=True)]
    return [
        f"{name}=={next(iter(versions))}" if len(versions) == 1 else name
        for name, versions in zip(packages, common, strict=True)
    ]


def _chosen(lines: Sequence[str], target: WheelTarget) -> list[str]:
    versions = wheelhouse.versions(lines, target)
    return [versions[normalized(line)] for line in lines]


def normalized(requirement: str) -> str:
    """Return the name of a package without extras, as installers compare it."""
    name = requirement.partition("[")[0]
    return re.sub(r"[-_.]+", "-", name).lower()
