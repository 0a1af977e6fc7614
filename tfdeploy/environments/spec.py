"""The environment that each host needs, named by its content. Reads the requirements files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.environments import requirements, tensorflow_rule
from tfdeploy.shared import installer_output

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdeploy.config.inventory import Host, Inventory
    from tfdeploy.environments.requirements import Requirements

FORMAT = 1  # a change of how environments are built gives all of them new names
HASHED = "--hash"


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
        return [installer_output.clean(line) for line in self.lines if not line.startswith("-")]


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
    lines = [tensorflow_rule.apply(line, has_gpus=has_gpus) for line in found.lines]
    if setup and not found.locked and not any(HASHED in line for line in lines):
        lines.append("pip")  # setup commands expect it
    constraints = [
        tensorflow_rule.apply_to_constraint(line, has_gpus=has_gpus) for line in found.constraints
    ]
    python = inventory.env.python or ""
    content = [FORMAT, lines, constraints, dict(found.locked), python or host.python, setup]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    return EnvironmentSpec(digest, tuple(lines), tuple(constraints), found.locked, python, setup)
