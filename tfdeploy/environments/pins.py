"""Choose the versions of packages that fit the Pythons and the platforms of all hosts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdeploy.environments import tensorflow_rule, wheelhouse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfdeploy.environments.wheelhouse import WheelTarget


def pin(packages: Sequence[str], hosts: Iterable[tuple[WheelTarget, bool]]) -> list[str]:
    """Return requirements with the versions of these packages; `hosts` are platforms, and whether
    they have GPUs. A package that has no common version stays as it is. Raises NoWheels if the
    versions can't be found, for example without a network."""
    found = [
        _chosen([tensorflow_rule.apply(name, has_gpus=gpus) for name in packages], target)
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
