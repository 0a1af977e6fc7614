"""The environment that each host needs, named by its content, with the TensorFlow that fits it.
Reads the requirements files."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.environments import requirements
from tfdeploy.shared import uv_and_pip

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdeploy.config.inventory import Host, Inventory
    from tfdeploy.environments.requirements import Requirements

FORMAT = 2  # a change of how environments are built gives all of them new names
HASHED = "--hash"
WITH_CUDA, WITHOUT_CUDA = "tensorflow[and-cuda]", "tensorflow-cpu"
PLAIN = re.compile(r"\Atensorflow(?=\s*([<>=!~;(]|$))", re.IGNORECASE)


@dataclass(frozen=True)
class EnvironmentSpec:
    """What to build on a host. `id` is the hash of all that follows; hosts with equal ids have the
    same environment.

    `lines`, `constraints` and `locked` are those of Requirements, after TensorFlow's rule; `python`
    is a version, "" for the host's own; `setup` are shell commands.
    """

    id: str
    lines: tuple[str, ...]
    constraints: tuple[str, ...]
    locked: Mapping[str, str]
    python: str
    setup: tuple[str, ...]

    @property
    def packages(self) -> list[str]:
        """Return the requirements without options, and without the passwords of URLs."""
        return [uv_and_pip.clean(line) for line in self.lines if not line.startswith("-")]


def for_hosts(inventory: Inventory) -> dict[str, EnvironmentSpec]:
    """Return the environment of each host; {} without [env]. Raises PlanError if a requirements
    file can't be read."""
    if inventory.env is None:
        return {}
    found = requirements.read(inventory)
    return {host.name: _spec(inventory, found, host) for host in inventory.hosts}


def _spec(inventory: Inventory, found: Requirements, host: Host) -> EnvironmentSpec:
    assert inventory.env is not None
    has_gpus, setup = bool(host.gpus), inventory.env.setup
    lines = [apply_tensorflow_rule(line, has_gpus=has_gpus) for line in found.lines]
    if setup and not found.locked and not any(HASHED in line for line in lines):
        lines.append(uv_and_pip.PIP)  # setup commands expect it
    constraints = [apply_to_constraint(line, has_gpus=has_gpus) for line in found.constraints]
    python = inventory.env.python or ""
    content = [FORMAT, lines, constraints, dict(found.locked), python or host.python, setup]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    return EnvironmentSpec(digest, tuple(lines), tuple(constraints), found.locked, python, setup)


def apply_tensorflow_rule(requirement: str, *, has_gpus: bool) -> str:
    """Return a line of requirements as a host installs it.

    On a host with GPUs, `tensorflow` becomes `tensorflow[and-cuda]`, with CUDA's libraries; on any
    other, `tensorflow-cpu`. The version stays. A requirement that says more than a version (extras,
    a URL, hashes) stays as it is.
    """
    if "--hash" in requirement:
        return requirement
    return PLAIN.sub(WITH_CUDA if has_gpus else WITHOUT_CUDA, requirement)


def apply_to_constraint(constraint: str, *, has_gpus: bool) -> str:
    """Return a constraint, which has no extras."""
    return constraint if has_gpus else apply_tensorflow_rule(constraint, has_gpus=False)
