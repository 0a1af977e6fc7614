"""What a run is going to be: what `init` and `check` found on the hosts, the plan, and pushed
releases."""

from __future__ import annotations

import json
import os
import shlex
from typing import TYPE_CHECKING

from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.formatting.humanize import (
    format_count,
    format_size,
    mask_urls,
    quote_path,
    shorten_names,
)
from tfdeploy.output import status_table
from tfdeploy.planning.frameworks import title
from tfdeploy.shared.records import GUARDED, OPEN, STRICT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from tfdeploy.commands.check import CheckResult
    from tfdeploy.commands.environments import BuildResult
    from tfdeploy.commands.init import Draft
    from tfdeploy.commands.intent import Intent
    from tfdeploy.environments.spec import EnvironmentSpec
    from tfdeploy.output.console import Console
    from tfdeploy.release.snapshot import Release
    from tfdeploy.shared.records import Launch

HIDDEN = "***"
MAX_PACKAGES = 5
# A larger plan is shown by its first tasks and one example of each job.
MANY_TASKS = 200
MAX_VALUE = 1000  # characters, of a large plan
NETWORKS = {
    GUARDED: "guarded: only you, and all users of the run's other hosts, can connect",
    STRICT: "strict: only your processes on the run's hosts can connect",
    OPEN: "open: everybody who reaches the hosts can connect to its tasks",
}


def print_plan(console: Console, intent: Intent) -> None:
    _print_placements(console, intent)
    chief, port = intent.plan.chief, intent.plan.heartbeat_port
    if port and len(intent.plan.placements) > 1:
        address = f"{chief.address}:{port}"
        console.print_text(
            "", f"{chief.host} also listens on {address}, for supervisors' heartbeats"
        )
    shorten = _shorten if len(intent.plan.placements) > MANY_TASKS else str
    if intent.plan.cluster:
        console.print_text("", f"cluster  {shorten(json.dumps(intent.plan.cluster))}")
    if intent.inventory.trials.points:
        _print_trials(console, intent)
    console.print_text(f"network  {NETWORKS[intent.inventory.network]}")
    console.print_text(f"release  {_release_text(intent.release)}")
    for key, target in intent.notified.items():
        text = mask_urls(shlex.join(target))
        console.print_text(f"notify   {key}: {text}, by {chief.host}")
    for place, data in intent.data.items():
        jobs, hosts = intent.inventory.data[place].jobs, intent.readers(place)
        readers = f"for {', '.join(jobs)} on {shorten_names(hosts)}"
        console.print_text(f"data     {place}  {_release_text(data)}, {readers}")
    for spec in {spec.id: spec for spec in intent.environments.values()}.values():
        hosts = [host for host, each in intent.environments.items() if each.id == spec.id]
        console.print_text(f"env      {spec.id}  {_spec_text(spec)}, on {shorten_names(hosts)}")
    if shorten is str:
        # The tasks of a run of trials are alike; this is the first trial.
        for launch in intent.launches()[: 1 if intent.inventory.trials.points else None]:
            _print_command(console, launch, shorten)
        return
    console.print_text(
        "", "one task of each job, as an example: env, python and GPUs of others may differ"
    )
    for launch in intent.examples():
        _print_command(console, launch, shorten)
    console.print_text("", "every task: tfdeploy plan --json")


def init_progress(console: Console, hosts: int, framework: str) -> AbstractContextManager[object]:
    """Return a context that shows, on a terminal, that `init` takes its time."""
    count = format_count(hosts, "host")
    return console.spinner(f"looking at {count}; each imports {title(framework)}")


def print_draft(console: Console, draft: Draft) -> None:
    """Print what was found, and why the file is as it is."""
    from tfdeploy.init.document import reasons
    from tfdeploy.init.machine import missing_packages

    _print_machines(console, draft)
    proposal = draft.proposal
    missing = missing_packages(proposal.program, proposal.machines)
    for reason in (*reasons(proposal), missing):
        if reason:
            console.print_text(reason)
    console.print_notes(draft.notes)


def print_whole_draft(console: Console, draft: Draft) -> None:
    """Print what was found, and the whole file, whose comments say why it is so."""
    _print_machines(console, draft)
    console.print_text(*draft.text.split("\n"))
    console.print_notes(draft.notes)


def _print_machines(console: Console, draft: Draft) -> None:
    framework = title(draft.proposal.program.framework).upper()
    rows = status_table.machine_rows(draft.proposal.machines, framework)
    console.out.print_table((*status_table.MACHINE_COLUMNS, framework), rows)
    console.print_text("")


def print_init_written(console: Console, draft: Draft, flags: str) -> None:
    """Print what to type next; `flags` name the file."""
    build = ["tfdeploy push"] if draft.inventory.env else []  # check tries the imports in it
    commands = [*build, "tfdeploy check", "tfdeploy run"]
    lines = [f"  {command} {flags}".rstrip() for command in commands]
    folder = os.path.relpath(draft.file.parent)
    enter = [f"  cd {quote_path(folder)}"] if folder != "." and not flags else []
    console.print_text(f"wrote {draft.file}. Next:", *enter, *lines)


def check_progress(
    console: Console, intent: Intent, hosts: Sequence[str]
) -> AbstractContextManager[object]:
    """Return a context that shows, on a terminal, that `check` takes its time."""
    count = format_count(len(hosts), "host")
    modules = ", ".join(map(title, intent.inventory.training.imports))
    return console.spinner(f"checking {count}{modules and f'; each imports {modules}'}")


def print_check(console: Console, checked: CheckResult, intent: Intent, flags: str) -> None:
    """Print what was found on each host, and what is wrong; `flags` name the hosts file."""
    if checked.hosts:
        columns = status_table.host_columns(intent.inventory.training.imports)
        console.out.print_table(columns, status_table.host_rows(checked.hosts))
    if checked.links:
        rows = status_table.link_rows(checked.links)
        console.out.print_table(status_table.LINK_COLUMNS, rows)
    console.print_notes(checked.notes)
    hosts = format_count(len(checked.hosts), "host")
    if not checked.errors and len(checked.hosts) < len(intent.hosts):
        console.print_text(f"found no problem on {hosts}; the other hosts were not checked")
    elif not checked.errors:
        tasks = format_count(len(intent.plan.placements), "task")
        run = f"tfdeploy run {flags}".rstrip()
        console.print_text(f"ready to start {tasks} on {hosts}: {run}")


def print_push_result(
    console: Console, outcome: Mapping[str, Mapping[str, bool]], intent: Intent
) -> None:
    """Print, for each release, the hosts that received it and those that already had it.
    `outcome` says by release and host whether it was sent."""
    from tfdeploy.transfer.shared_directory import group_by_store

    data = {f"data {place}, release": release for place, release in intent.data.items()}
    for name, release in {"release": intent.release, **data}.items():
        was_sent = outcome[release.id]
        receivers = [host for host, sent in was_sent.items() if sent]
        groups = group_by_store(intent.inventory, was_sent)
        sharing = [host for receiver in receivers for host in groups[receiver]]
        holders = [h for h, sent in was_sent.items() if not sent and h not in sharing]
        if receivers:
            total = format_size(release.size)
            console.print_step(f"pushed {name} {release.id} ({total}) to {fold_names(receivers)}")
        if sharing:
            console.print_step(f"{fold_names(sharing)} see it on the file system that they share")
        if holders:
            console.print_step(f"{name} {release.id} is already on {fold_names(holders)}")


def print_environments(console: Console, built: BuildResult, intent: Intent) -> None:
    """Print, for each environment, the hosts that built it and those that already had it."""
    for name in dict.fromkeys(intent.environment_ids.values()):
        of_name = [host for host, id_ in intent.environment_ids.items() if id_ == name]
        fresh = [host for host in of_name if host in built.built]
        present = [host for host in of_name if host in built.present]
        if fresh:
            console.print_step(f"built environment {name} on {fold_names(fresh)}")
        if present:
            console.print_step(f"environment {name} is already on {fold_names(present)}")


def _print_placements(console: Console, intent: Intent) -> None:
    placements = intent.plan.placements
    rows = [
        {
            "TASK": str(placement.task),
            "HOST": placement.host,
            "LISTENS ON": placement.endpoint if placement.port is not None else "-",
            "GPUS": status_table.gpu_indices(placement)
            + (", chosen at the start" if placement.gpu_choice else ""),
            "CHIEF": "chief" if placement == intent.plan.chief else "",
        }
        for placement in placements[:MANY_TASKS]
    ]
    console.out.print_table(("TASK", "HOST", "LISTENS ON", "GPUS", "CHIEF"), rows)
    if len(placements) > MANY_TASKS:
        console.print_text(f"and {format_count(len(placements) - MANY_TASKS, 'more task')}")


def _print_trials(console: Console, intent: Intent) -> None:
    points, slots = intent.inventory.trials.points, len(intent.plan.placements)
    rows = [{"TRIAL": str(number), **point} for number, point in enumerate(points)]
    console.print_text("")
    console.out.print_table(("TRIAL", *points[0]), rows)
    at_once = format_count(min(slots, len(points)), "trial")
    console.print_text("", f"trials   {len(points):,}, {at_once} at once")


def _print_command(console: Console, launch: Launch, shorten: Callable[[str], str]) -> None:
    console.print_text("")
    console.out.print((launch.task, "bold"))
    for name, value in launch.process.env.items():
        console.print_text(f"  {name}={shorten(shlex.quote(value))}")
    for name in launch.process.secrets:
        console.print_text(f"  {name}={HIDDEN}")
    for path, text in launch.directory.files.items():
        console.print_text(*f"  {path}: {shorten(text)}".split("\n"))
    console.print_text(f"  $ {shorten(_command_text(launch.process.argv))}")


def _command_text(argv: Sequence[str]) -> str:
    """Return a command as a shell takes it, which would not expand a `~` in quotes."""
    program, *words = argv
    if not program.startswith("~/"):
        return shlex.join(argv)
    return "~/" + shlex.join([program.removeprefix("~/"), *words])


def _shorten(text: str) -> str:
    more = len(text) - MAX_VALUE
    return f"{text[:MAX_VALUE]}… {format_count(more, 'more character')}" if more > 0 else text


def _spec_text(spec: EnvironmentSpec) -> str:
    """Return what an environment has, such as `Python 3.12, tensorflow-cpu, 3 more packages`."""
    more = len(spec.packages) - MAX_PACKAGES
    parts = [f"Python {spec.python}"] if spec.python else []
    parts += ["uv.lock"] if spec.locked else spec.packages[:MAX_PACKAGES]
    parts += [format_count(more, "more package")] if more > 0 else []
    parts += [format_count(len(spec.setup), "setup command")] if spec.setup else []
    return ", ".join(parts) or "no packages"


def _release_text(release: Release) -> str:
    if not release.manifest:
        return f"{release.id}  an older release, on the hosts"
    files = f"{format_count(len(release.manifest), 'file')}, {format_size(release.size)}"
    return f"{release.id}  {files} from {release.root}"
