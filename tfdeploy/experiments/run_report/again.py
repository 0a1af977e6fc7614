"""The commands that do a run again. Pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tfdeploy.experiments.run_report import redact

if TYPE_CHECKING:
    from tfdeploy.run import Run

HOSTS_FILE = "hosts.toml"


def same_release(run: Run) -> str:
    """Return the command that starts the run's release with the hosts.toml of today."""
    jobs = [placement.task.job for placement in run.plan.placements]
    counts = f"workers={jobs.count('worker')}"
    if "ps" in jobs:
        counts = f"ps={jobs.count('ps')},{counts}"
    words = ["tfdeploy", "run", *_hosts(run.inventory.file.name)]
    words += ["--release", run.release, "--with", counts]
    words += ["--name", run.name] if run.name else []
    words += ["--", *redact.show_words(run.words)] if run.words else []
    return shlex.join(words)


def recorded_hosts(run: Run) -> str:
    """Return the commands that start the run's release with the hosts.toml of its record, which
    has its words, variables and ports, too."""
    copy = f"hosts.{run.id}.toml"
    name = f" --name {shlex.quote(run.name)}" if run.name else ""
    return (
        f"cp runs/{run.id}/{HOSTS_FILE} {copy}\n"
        f"tfdeploy run --hosts {copy} --release {shlex.quote(run.release)}{name}"
    )


def _hosts(name: str) -> list[str]:
    return [] if name == HOSTS_FILE else ["--hosts", name]
