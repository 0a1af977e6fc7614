"""hosts.toml: its schema, its defaults, and the messages that refuse a wrong value."""

from __future__ import annotations

import os

NO_PLUGINS = "PYDANTIC_DISABLE_PLUGINS"


def _build_models() -> None:
    """Import the models without plugins for Pydantic, as Typer builds its own: to find the plugins,
    Pydantic opens a file of each package that is installed."""
    before = os.environ.get(NO_PLUGINS)
    os.environ[NO_PLUGINS] = "1"
    try:
        import tfdeploy.config.models  # noqa: F401
    finally:
        if before is None:
            del os.environ[NO_PLUGINS]
        else:
            os.environ[NO_PLUGINS] = before


_build_models()
