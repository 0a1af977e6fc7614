"""Turn machines that you reach by SSH into one TensorFlow cluster, and fetch the results.

    inventory = tfdeploy.Inventory.load("hosts.toml")
    run = tfdeploy.start(inventory, words=["--lr", "0.1"], push=True)
    for line in run.logs(follow=True):
        print(line.task, line.text)
    print(run.attach().collected.folder)

Every name is imported when it is first used, so that the command line starts fast. What is not in
`__all__` may change in any version.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfdeploy.api.functions import Inventory, check, plan, prune, push, runs, start
    from tfdeploy.api.run import Run
    from tfdeploy.branches.measuring.compare import Comparison, compare
    from tfdeploy.commands.check import CheckResult
    from tfdeploy.commands.collect import CollectResult
    from tfdeploy.commands.fetch import FetchResult
    from tfdeploy.commands.intent import Intent
    from tfdeploy.commands.logs import LogLine
    from tfdeploy.commands.prune import PruneResult
    from tfdeploy.commands.resume import ResumeResult
    from tfdeploy.commands.running.follow import RunEnd, Watcher
    from tfdeploy.commands.running.run import FinishedRun
    from tfdeploy.commands.runs import ProjectRuns
    from tfdeploy.commands.scale import ScaleResult
    from tfdeploy.commands.status import RunStatus
    from tfdeploy.commands.stop import StopResult
    from tfdeploy.errors import (
        AgentError,
        AgentExitedEarly,
        AuthenticationFailed,
        Cancelled,
        CommandFailed,
        CommandTimedOut,
        FleetError,
        HostError,
        HostKeyRefused,
        InventoryError,
        LeaseConflict,
        NotTrusted,
        PlanError,
        RunError,
        TaskError,
        TaskFailed,
        TaskNotReady,
        TfdeployError,
        TransferFailed,
        Unreachable,
    )
    from tfdeploy.shared.records import TaskReport

_PUBLIC = {
    "shared.records": ("TaskReport",),
    "api.functions": ("Inventory", "check", "plan", "prune", "push", "runs", "start"),
    "api.run": ("Run",),
    "commands.logs": ("LogLine",),
    "commands.check": ("CheckResult",),
    "commands.collect": ("CollectResult",),
    "commands.fetch": ("FetchResult",),
    "commands.plan": ("Intent",),
    "commands.prune": ("PruneResult",),
    "commands.resume": ("ResumeResult",),
    "commands.running.run": ("FinishedRun",),
    "commands.running.follow": ("RunEnd", "Watcher"),
    "commands.runs": ("ProjectRuns",),
    "commands.scale": ("ScaleResult",),
    "commands.status": ("RunStatus",),
    "commands.stop": ("StopResult",),
    "errors": (
        *("AgentError", "AgentExitedEarly", "AuthenticationFailed", "Cancelled", "CommandFailed"),
        *("CommandTimedOut", "FleetError", "HostError", "HostKeyRefused", "InventoryError"),
        *("LeaseConflict", "NotTrusted", "PlanError", "RunError", "TaskError", "TaskFailed"),
        *("TaskNotReady", "TfdeployError", "TransferFailed", "Unreachable"),
    ),
    "branches.measuring.compare": ("Comparison", "compare"),
}
_MODULES = {name: module for module, names in _PUBLIC.items() for name in names}
__all__ = [
    "AgentError",
    "AgentExitedEarly",
    "AuthenticationFailed",
    "Cancelled",
    "CheckResult",
    "CollectResult",
    "CommandFailed",
    "CommandTimedOut",
    "Comparison",
    "FetchResult",
    "FinishedRun",
    "FleetError",
    "HostError",
    "HostKeyRefused",
    "Intent",
    "Inventory",
    "InventoryError",
    "LeaseConflict",
    "LogLine",
    "NotTrusted",
    "PlanError",
    "ProjectRuns",
    "PruneResult",
    "ResumeResult",
    "Run",
    "RunEnd",
    "RunError",
    "RunStatus",
    "ScaleResult",
    "StopResult",
    "TaskError",
    "TaskFailed",
    "TaskNotReady",
    "TaskReport",
    "TfdeployError",
    "TransferFailed",
    "Unreachable",
    "Watcher",
    "check",
    "compare",
    "plan",
    "prune",
    "push",
    "runs",
    "start",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'tfdeploy' has no attribute {name!r}")
    return getattr(import_module(f"tfdeploy.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
