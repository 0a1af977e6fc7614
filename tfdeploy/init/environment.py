"""Write the table [env]: the packages that tfdeploy installs on hosts without TensorFlow. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tfdeploy.config.models import FileFields

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY = "env"


def is_supported() -> bool:
    """Return whether hosts.toml may have the table."""
    return KEY in FileFields.model_fields


def table(requirements: str, packages: Sequence[str]) -> str:
    """Return the table for a file that lists the packages, or for these packages if it is ""."""
    value = json.dumps(requirements or list(packages), ensure_ascii=False)
    return f"[{KEY}]\nrequirements = {value}\n"
