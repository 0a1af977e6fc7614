"""The documents of --json: a shape and a function for each. Scripts rely on their keys. Pure.

A function is imported when it is used: the shapes of a module take some milliseconds to define.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfdeploy.output.json_output.comparing import compare_document
    from tfdeploy.output.json_output.disks import prune_document, runs_document
    from tfdeploy.output.json_output.live import watch_document
    from tfdeploy.output.json_output.planning import check_document, plan_document, push_document
    from tfdeploy.output.json_output.problems import failure_document
    from tfdeploy.output.json_output.results import (
        collect_document,
        fetch_document,
        tensorboard_document,
    )
    from tfdeploy.output.json_output.runs import (
        resume_document,
        run_document,
        scale_document,
        start_document,
        stop_document,
    )
    from tfdeploy.output.json_output.watching import folded_lines, log_lines, status_document

__all__ = [
    "check_document",
    "collect_document",
    "compare_document",
    "failure_document",
    "fetch_document",
    "folded_lines",
    "log_lines",
    "plan_document",
    "prune_document",
    "push_document",
    "resume_document",
    "run_document",
    "runs_document",
    "scale_document",
    "start_document",
    "status_document",
    "stop_document",
    "tensorboard_document",
    "watch_document",
]

_FUNCTIONS = {
    "disks": ("prune_document", "runs_document"),
    "comparing": ("compare_document",),
    "live": ("watch_document",),
    "planning": ("check_document", "plan_document", "push_document"),
    "problems": ("failure_document",),
    "results": ("collect_document", "fetch_document", "tensorboard_document"),
    "runs": (
        "resume_document",
        "run_document",
        "scale_document",
        "start_document",
        "stop_document",
    ),
    "watching": ("folded_lines", "log_lines", "status_document"),
}
_MODULES = {name: module for module, names in _FUNCTIONS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
