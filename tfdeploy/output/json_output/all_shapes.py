"""The shape of what each command prints with --json."""

from __future__ import annotations

from tfdeploy.output.json_output.comparing import CompareDocument
from tfdeploy.output.json_output.disks import PruneDocument, RunsDocument
from tfdeploy.output.json_output.live import WatchDocument
from tfdeploy.output.json_output.planning import CheckDocument, PlanDocument, PushDocument
from tfdeploy.output.json_output.problems import FailureDocument
from tfdeploy.output.json_output.results import CollectDocument, FetchDocument, TensorBoardDocument
from tfdeploy.output.json_output.runs import (
    ResumeDocument,
    RunDocument,
    ScaleDocument,
    StartDocument,
    StopDocument,
)
from tfdeploy.output.json_output.sweeps import SweepDocument
from tfdeploy.output.json_output.watching import LogLine, StatusDocument

SHAPES: dict[str, type] = {
    "plan": PlanDocument,
    "check": CheckDocument,
    "push": PushDocument,
    "start": StartDocument,
    "run": RunDocument,
    "attach": RunDocument,
    "resume": ResumeDocument,
    "scale": ScaleDocument,
    "status": StatusDocument,
    "watch": WatchDocument,
    "logs": LogLine,
    "tensorboard": TensorBoardDocument,
    "collect": CollectDocument,
    "fetch": FetchDocument,
    "stop": StopDocument,
    "runs": RunsDocument,
    "prune": PruneDocument,
    "compare": CompareDocument,
    "sweep": SweepDocument,
    "error": FailureDocument,
}
"""By command; "error" is what a command that fails prints instead."""
