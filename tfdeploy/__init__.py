"""Turn machines that you reach by SSH into one TensorFlow cluster, and fetch the results.

    inventory = tfdeploy.load(Path("hosts.toml"))
    intent = tfdeploy.plan_all(inventory)
    with tfdeploy.Fleet(inventory) as fleet:
        tfdeploy.push(fleet, intent)
        run = tfdeploy.start(fleet, intent)

Each name is imported when it is first used, so that the command line starts fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfdeploy.commands.collect import collect
    from tfdeploy.commands.logs import logs
    from tfdeploy.commands.plan import plan_all
    from tfdeploy.commands.prune import prune
    from tfdeploy.commands.push import push
    from tfdeploy.commands.resume import resume
    from tfdeploy.commands.run import finish
    from tfdeploy.commands.run_follow import follow
    from tfdeploy.commands.runs import runs
    from tfdeploy.commands.start import start
    from tfdeploy.commands.status import status
    from tfdeploy.commands.stop import stop
    from tfdeploy.config.inventory import Inventory, load
    from tfdeploy.errors import TfdeployError
    from tfdeploy.experiments.compare import compare
    from tfdeploy.experiments.sweep import sweep
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.planning.plan import Plan
    from tfdeploy.release.snapshot import Release
    from tfdeploy.run import Run

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

_MODULES = {
    "Fleet": "hosts.fleet",
    "Inventory": "config.inventory",
    "Plan": "planning.plan",
    "Release": "release.snapshot",
    "Run": "run",
    "TfdeployError": "errors",
    "compare": "experiments.compare",
    "load": "config.inventory",
    "plan_all": "commands.plan",
    "finish": "commands.run",
    "follow": "commands.run_follow",
    "sweep": "experiments.sweep",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tfdeploy' has no attribute {name!r}")
    return getattr(import_module(f"tfdeploy.{_MODULES.get(name, f'commands.{name}')}"), name)
