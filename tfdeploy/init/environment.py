"""Write the table [env]: the packages that tfdeploy installs on hosts that lack some. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.formatting.humanize import escape_line
from tfdeploy.planning.frameworks import TENSORFLOW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.init.machine import Machine

MAX_COLUMNS = 88


@dataclass(frozen=True)
class FoundRequirements:
    """What hosts.toml has under `requirements`: a file of the project, or a list of packages.
    `unpinned` says why the list has no versions."""

    value: str | tuple[str, ...]
    unpinned: str = ""


def reason(packages: Sequence[str], machines: Sequence[Machine]) -> str:
    """Return a sentence about the hosts that lack some of the program's packages; "" if none
    does."""
    without = [machine.name for machine in machines if not machine.tensorflow]
    if TENSORFLOW in packages and without:
        found = f"no Python with TensorFlow on {fold_names(without)}"
    else:
        lacking = {m.name: m.missing for m in machines if m.missing}
        missing = dict.fromkeys(name for names in lacking.values() for name in names)
        found = f"no {', '.join(missing)} on {fold_names(lacking)}" if missing else ""
    return f"{escape_line(found)}: tfdeploy installs the packages of [env]" if found else ""


def table(requirements: FoundRequirements) -> str:
    """Return the table."""
    value = requirements.value
    line = f"requirements = {_json(value if isinstance(value, str) else list(value))}"
    if len(line) > MAX_COLUMNS and not isinstance(value, str):
        line = "\n".join(["requirements = [", *(f"    {_json(each)}," for each in value), "]"])
    note = f"# without versions: {escape_line(requirements.unpinned)}\n"
    return f"[env]\n{note if requirements.unpinned else ''}{line}\n"


def _json(value: str | list[str]) -> str:
    return json.dumps(value, ensure_ascii=False)
