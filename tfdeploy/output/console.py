"""The one object that prints for people, and the functions that print for scripts.

Commands return objects; the modules behind Console turn them into text, tables and colours.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from tfdeploy.documents import to_json
from tfdeploy.formatting.humanize import escape_json
from tfdeploy.output.disk_output import DiskOutput
from tfdeploy.output.experiment_output import ExperimentOutput
from tfdeploy.output.hosts_output import HostsOutput
from tfdeploy.output.plan_output import PlanOutput
from tfdeploy.output.results_output import ResultsOutput
from tfdeploy.output.run_events import RunOutput
from tfdeploy.output.status_output import StatusOutput

if TYPE_CHECKING:
    from collections.abc import Iterable


class Console(
    PlanOutput, RunOutput, StatusOutput, ResultsOutput, DiskOutput, ExperimentOutput, HostsOutput
):
    """Text for people: on standard output, or on standard error if that holds JSON."""


def print_json(document: Any) -> None:
    """Print what a command returned, on standard output.

    Characters that a terminal would obey or hide (C1, bidirectional) are written as JSON's escapes.
    """
    _write(_dump(document, indent=1))


def print_json_lines(documents: Iterable[Any]) -> None:
    """Print each document in a line of its own, at once."""
    _write(*(_dump(document) for document in documents))


def _dump(document: Any, indent: int | None = None) -> str:
    return escape_json(json.dumps(to_json(document), indent=indent, ensure_ascii=False))


def _write(*texts: str) -> None:
    sys.stdout.write("".join(f"{text}\n" for text in texts))
    sys.stdout.flush()
