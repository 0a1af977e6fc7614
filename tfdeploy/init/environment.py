"""Write the table [env]: the packages that tfdeploy installs on hosts without TensorFlow. Pure."""

from __future__ import annotations

import json

from tfdeploy.config.models import FileFields

KEY = "env"


def is_supported() -> bool:
    """Return whether hosts.toml may have the table."""
    return KEY in FileFields.model_fields


def table(requirements: str) -> str:
    """Return the table for a file that lists the packages; "" for TensorFlow alone."""
    value = json.dumps(requirements, ensure_ascii=False) if requirements else '["tensorflow"]'
    return f"[{KEY}]\nrequirements = {value}\n"
