"""The one object that prints for people, and the one function that prints for scripts.

Commands return objects; the modules behind Console turn them into text, tables and colours.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tfdeploy.formatting.humanize import escape_json
from tfdeploy.output.disk_output import DiskOutput
from tfdeploy.output.experiment_output import ExperimentOutput
from tfdeploy.output.plan_output import PlanOutput
from tfdeploy.output.results_output import ResultsOutput
from tfdeploy.output.run_events import RunEvents
from tfdeploy.output.status_output import StatusOutput


class Console(PlanOutput, RunEvents, StatusOutput, ResultsOutput, DiskOutput, ExperimentOutput):
    """Text for people: on standard output, or on standard error if that holds JSON."""


def print_json(document: Any) -> None:
    """Print one JSON document on standard output.

    Characters that a terminal would obey or hide (C1, bidirectional) are written as JSON's escapes.
    """
    text = json.dumps(document, indent=1, ensure_ascii=False)
    sys.stdout.write(escape_json(text) + "\n")
