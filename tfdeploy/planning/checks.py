"""Refuse a plan that contradicts the files of the release or the paths in hosts.toml, and a launch
that Linux can't execute. Pure."""

from __future__ import annotations

import math
import posixpath
from typing import TYPE_CHECKING

from tfdeploy.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tfdeploy.config.inventory import Inventory, Training
    from tfdeploy.planning.plan import Plan
    from tfdeploy.shared.records import Launch

PYTHON_WORDS = ("python", "python3")
HEARTBEATS_PER_S = 50  # of all tasks together: see the agent's heartbeat/client.py
HEARTBEATS = 3  # that a task tries to send before it counts as cut off
# Of one argument, or of one variable with its name, without the byte 0 at its end. The limit is 32
# pages of at least 4 KiB: execve(2), MAX_ARG_STRLEN.
MAX_BYTES = 32 * 4096 - 1
# Only the first task of each job is checked before a start: the others have other indexes.
SPARE_BYTES = 32
NO_PROXY = "no_grpc_proxy"  # the longest name of the variables that hold no_proxy


def check_chief(training: Training, plan: Plan) -> None:
    """Raise PlanError for [training.chief] if worker:0 is the chief: it would be ignored."""
    if plan.chief.task.job != "chief" and training.chief.given:
        raise PlanError(
            f"training.chief: no host has chief = true, so {plan.chief.task} is the chief",
            "rename it to [training.worker], or set chief = true on a host",
        )


def check_orphan_timeout(training: Training, plan: Plan) -> None:
    """Raise PlanError if tasks would end although they reach the chief: in a large cluster a task
    sends fewer heartbeats."""
    tasks = len(plan.placements)
    least_s = math.ceil(HEARTBEATS * tasks / HEARTBEATS_PER_S)
    if training.orphan_timeout_s < least_s:
        raise PlanError(
            f"training.orphan_timeout_s: found {training.orphan_timeout_s:g}; expected at least "
            f"{least_s}, the time for {HEARTBEATS} heartbeats of each of {tasks:,} tasks, which "
            f"together send {HEARTBEATS_PER_S} per second",
            f"set orphan_timeout_s = {least_s} or more, or leave it out",
        )


def check_words(training: Training, plan: Plan, words: Collection[str]) -> None:
    """Raise PlanError for words of the command line if no task runs `training.command`."""
    jobs = sorted({p.task.job for p in plan.placements})
    if words and all(getattr(training, job).command for job in jobs):
        raise PlanError(
            f"-- {next(iter(words))} …: words are added to training.command, which no task runs: "
            f"{', '.join(f'training.{job}.command' for job in jobs)} replaces it",
            f"leave them out, or delete training.{jobs[-1]}.command",
        )


def check_files(inventory: Inventory, files: Collection[str]) -> None:
    """Raise PlanError if the path of a role file is taken."""
    training = inventory.training
    checkpoints = posixpath.normpath(training.checkpoint_dir)
    for place in training.role_files:
        others = [other for other in training.role_files if other != place]
        paths = (checkpoints, *files, *inventory.data, *others)
        taken = next((path for path in paths if _overlap(place, path)), None)
        if taken:
            raise PlanError(
                f"training.role_files.{place}: its path is taken by {taken}",
                "give the file another name",
            )


def check_data(inventory: Inventory, plan: Plan, files: Collection[str]) -> None:
    """Raise PlanError for a data set that no task reads, or whose path is taken by a file of the
    release or by the checkpoints."""
    jobs = {p.task.job for p in plan.placements}
    checkpoint_dir = inventory.training.checkpoint_dir
    for place, data in inventory.data.items():
        if not jobs & {*data.jobs}:
            raise PlanError(
                f"data.{place}.jobs: no task is a {' or '.join(data.jobs)}",
                f"the plan has the jobs {', '.join(sorted(jobs))}",
            )
        if _overlap(place, posixpath.normpath(checkpoint_dir)):
            raise PlanError(
                f"data.{place} is read-only, but it overlaps training.checkpoint_dir, "
                f"{checkpoint_dir}",
                "give one of them another path",
            )
        taken = next((file for file in files if _overlap(place, file)), None)
        if taken:
            raise PlanError(
                f"data.{place}: its path is taken by {taken} of the source",
                f'add "/{min(taken, place, key=len)}" to source.exclude, or give the data set '
                "another path",
            )


def _overlap(one: str, other: str) -> bool:
    """Return whether two paths are equal, or one is inside the other."""
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def refuse_too_long(launch: Launch, tasks: int) -> None:
    """Raise PlanError if an argument or a variable of a launch is longer than Linux accepts;
    `tasks` is the number of tasks in the plan."""
    for name, text in _texts(launch):
        if 4 * len(text) <= MAX_BYTES:  # UTF-8 needs at most 4 bytes for a character
            continue
        size = len(text.encode())
        if size > MAX_BYTES - SPARE_BYTES:
            lists_tasks = any(address in text for address in launch.endpoint.no_proxy)
            raise PlanError(
                f"{name} of {launch.endpoint.name or launch.task} has {size:,} bytes"
                f"{f' with the addresses of {tasks:,} tasks' if lists_tasks else ''}; Linux passes "
                f"at most {MAX_BYTES:,} bytes to a program in one argument or variable",
                "start fewer tasks, or set shorter addresses in hosts.toml"
                if lists_tasks
                else "shorten it, or pass a file instead",
            )


def _texts(launch: Launch) -> Iterator[tuple[str, str]]:
    """Yield each argument and variable with its name."""
    for word in launch.process.argv:
        flag, separator, _ = word.partition("=")
        yield (flag if separator else f"the argument {word[:20]}…"), word
    for name, value in launch.process.env.items():
        yield name, f"{name}={value}"
    yield "no_proxy", f"{NO_PROXY}={','.join(launch.endpoint.no_proxy)}"
