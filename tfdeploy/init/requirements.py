"""Choose what [env] has: a file of the project, or packages with versions that fit the Pythons and
the platforms of all hosts."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from tfdeploy.environments import spec, wheelhouse
from tfdeploy.errors import TfdeployError
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.init import keras
from tfdeploy.init.document import FoundRequirements
from tfdeploy.init.machine import missing_packages
from tfdeploy.release import modules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from tfdeploy.environments.wheelhouse import WheelTarget
    from tfdeploy.init.machine import Machine
    from tfdeploy.init.program import Program

OWN_KERAS_2 = 16  # TensorFlow 2.16 is the first that needs another package for Keras 2
# The versions of TensorFlow in a requirements.txt or pyproject.toml, and in a uv.lock.
VERSIONS = r"[=~<>!][=~<>!\d.*, ]*"
REQUIRED = re.compile(
    rf"^[^#\n]*?(?<![\w.-])tensorflow(?:[-_]cpu)?(?:\[.*?\])?\s*({VERSIONS})", re.MULTILINE
)
LOCKED = re.compile(r'^name = "tensorflow(?:-cpu)?"\nversion = "(.*)"', re.MULTILINE)
ONE_MINOR = re.compile(r"(?:={2,3}|~=(?= *\d+\.\d+\.)) *2\.(\d+)(?:\.[\d*]+)*")  # not ~=2.16
CPU_HINT = (
    "PyTorch's installation page names an index of wheels for CPUs; add it in [defaults]: "
    'env = { PIP_EXTRA_INDEX_URL = "…" }'
)


def choose(
    program: Program, machines: Sequence[Machine], folder: Path, *, keras_2: bool
) -> FoundRequirements | None:
    """Return the requirements for these machines; None if they have all that the program needs.
    `folder` is that of hosts.toml."""
    if not missing_packages(program, machines):
        return None
    if program.requirements:
        setup = _setup_for_keras_2(folder / program.requirements) if keras_2 else ()
        return FoundRequirements(program.requirements, setup=setup)
    names = (*program.packages, *((keras.PACKAGE,) if keras_2 else ()))
    hosts = [(_platform(machine), bool(machine.gpus)) for machine in machines]
    try:
        return FoundRequirements(tuple(pin(names, hosts)))
    except wheelhouse.NoWheels as reason:
        return FoundRequirements(names, str(reason))


def _setup_for_keras_2(file: Path) -> tuple[str, ...]:
    """Return the command that installs Keras 2 beside the requirements of a file, without a second
    TensorFlow; none if they bring it."""
    text = modules.text(file)
    required, locked = REQUIRED.search(text), LOCKED.search(text)
    versions = f"=={locked[1]}" if locked else required[1].strip(" ,") if required else ""
    one = ONE_MINOR.fullmatch(versions)
    if re.search(r"\btf[-_.]keras\b", text) or (one and int(one[1]) < OWN_KERAS_2):
        return ()
    # A version of Keras 2 has the first two numbers of its TensorFlow.
    package = f"{keras.PACKAGE}{f'==2.{one[1]}.*' if one else versions.replace(' ', '')}"
    return (f"pip install --no-deps {shlex.quote(package)}",)


def with_cuda(program: Program, machines: Sequence[Machine]) -> Iterator[TfdeployError]:
    """Yield a note if hosts without GPUs would get a PyTorch with CUDA, as PyPI has it."""
    without = [machine.name for machine in machines if not machine.gpus]
    if program.framework == "torch" and without:
        found = f"{fold_names(without)}: no GPU, but PyTorch comes with CUDA, about 5 GB"
        yield TfdeployError(found, CPU_HINT)


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
    return [versions[_normalized(line)] for line in lines]


def _normalized(requirement: str) -> str:
    """Return the name of a package without extras, as installers compare it."""
    name = requirement.partition("[")[0]
    return re.sub(r"[-_.]+", "-", name).lower()
