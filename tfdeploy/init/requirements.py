"""Choose what [env] has: a file of the project, or packages with versions that fit all hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.environments import pins, wheelhouse
from tfdeploy.init import environment
from tfdeploy.init.environment import Requirements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.init.machine import Machine
    from tfdeploy.init.program import Program

LEGACY_KERAS = "tf_keras"


def choose(
    program: Program, machines: Sequence[Machine], *, legacy_keras: bool
) -> Requirements | None:
    """Return the requirements for these machines; None if they have all that the program needs."""
    if not environment.reason(program.packages, machines):
        return None
    if program.requirements:
        return Requirements(program.requirements)
    packages = (*program.packages, *((LEGACY_KERAS,) if legacy_keras else ()))
    hosts = [(_platform(machine), bool(machine.gpus)) for machine in machines]
    try:
        return Requirements(tuple(pins.pin(packages, hosts)))
    except wheelhouse.NoWheels as reason:
        return Requirements(packages, str(reason))


def _platform(machine: Machine) -> wheelhouse.Target:
    python = ".".join(machine.python_version.split(".")[:2])
    return wheelhouse.Target(python, machine.architecture, machine.libc)
