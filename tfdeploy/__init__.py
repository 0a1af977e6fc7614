"""Turn machines that you reach by SSH into one TensorFlow cluster, and bring the result home.

    inventory = tfdeploy.load(Path("hosts.toml"))
    intent = tfdeploy.plan_all(inventory)
    with tfdeploy.Fleet(inventory) as fleet:
        tfdeploy.push(fleet, intent)
        run = tfdeploy.start(fleet, intent)

Names are imported when they are first used, so that the command line starts at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfdeploy.errors import TfdeployError
    from tfdeploy.fleet import Fleet
    from tfdeploy.inventory import Inventory, load
    from tfdeploy.plan import Plan
    from tfdeploy.release import Release
    from tfdeploy.run import Run
    from tfdeploy.steps.collect import collect
    from tfdeploy.steps.compare import compare
    from tfdeploy.steps.logs import logs
    from tfdeploy.steps.plan import plan_all
    from tfdeploy.steps.prune import prune
    from tfdeploy.steps.push import push
    from tfdeploy.steps.resume import resume
    from tfdeploy.steps.run import finish, follow
    from tfdeploy.steps.runs import runs
    from tfdeploy.steps.start import start
    from tfdeploy.steps.status import status
    from tfdeploy.steps.stop import stop
    from tfdeploy.steps.sweep import sweep

__all__ = [
    "Fleet",
    "Inventory",
    "Plan",
    "Release",
    "Run",
    "TfdeployError",
    "collect",
    "compare",
    "finish",
    "follow",
    "load",
    "logs",
    "plan_all",
    "prune",
    "push",
    "resume",
    "runs",
    "start",
    "status",
    "stop",
    "sweep",
]

_HOMES = {
    "Fleet": "fleet",
    "Inventory": "inventory",
    "Plan": "plan",
    "Release": "release",
    "Run": "run",
    "TfdeployError": "errors",
    "load": "inventory",
    "plan_all": "steps.plan",
    "finish": "steps.run",
    "follow": "steps.run",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tfdeploy' has no attribute {name!r}")
    return getattr(import_module(f"tfdeploy.{_HOMES.get(name, f'steps.{name}')}"), name)
