"""Watch a run without a terminal: a line for each change, and one about the training every 10 s; or
JSON lines."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tfdeploy.agent.protocol.message import to_json
from tfdeploy.agent.protocol.watching import HostSample
from tfdeploy.errors import HostError
from tfdeploy.formatting.humanize import escape_json
from tfdeploy.hosts.following import HostIsBack, may_return
from tfdeploy.live import summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdeploy.commands.watch import Event, Samples, WatchedHost, WatchedRun, WatchedTask
    from tfdeploy.output.console import Console

TRAINING_EVERY_S = 10.0
DOCUMENT_EVERY_S = 5.0
FIRST_S = 1.0  # until the first samples have arrived


def print_changes(watched: WatchedRun, following: Samples, console: Console) -> None:
    """Print what changes until the run has ended, and then how."""
    printed = ""
    for is_last in _periods(watched, following, TRAINING_EVERY_S, console):
        line = "  ".join(summary.training_parts(watched, time.monotonic()))
        if line != printed and not is_last:
            console.print_text(line)
            printed = line
    print_end(watched, console)


def print_end(watched: WatchedRun, console: Console) -> None:
    """Print how the run ended, if it has."""
    end = summary.end_line(watched)
    if end:
        console.print_text(f"run {watched.run.id} {end}")


def print_documents(watched: WatchedRun, following: Samples, console: Console) -> None:
    """Print a JSON document, in one line, every DOCUMENT_EVERY_S and at the end."""
    for _ in _periods(watched, following, DOCUMENT_EVERY_S, console):
        text = json.dumps(document(watched, time.monotonic()), ensure_ascii=False)
        sys.stdout.write(escape_json(text) + "\n")
        sys.stdout.flush()


def _periods(
    watched: WatchedRun, following: Samples, every_s: float, console: Console
) -> Iterator[bool]:
    """Take events; yield False after each `every_s` seconds, and True at the end."""
    due = time.monotonic() + FIRST_S
    while not watched.has_ended:
        over = True
        for host, event in following.events(due):
            over = False
            watched.take(host, event, time.monotonic())
            _print_event(host, event, console)
            if watched.has_ended or time.monotonic() >= due:
                break
        if over and time.monotonic() < due:  # no host will send anything more
            break
        if not watched.has_ended and time.monotonic() >= due:
            yield False
            due = time.monotonic() + every_s
    yield True


def _print_event(host: str, event: Event, console: Console) -> None:
    if isinstance(event, HostSample):
        for use in event.tasks:
            console.print_report(host, use.report)
    elif isinstance(event, HostIsBack):
        console.print_host_back(host)
    elif isinstance(event, HostError) and may_return(event):
        console.print_host_lost(event)


def document(watched: WatchedRun, now: float) -> dict[str, Any]:
    """Return everything that is known as JSON objects. Fields without a value are null. Pure."""
    history, report, position = watched.history, watched.training, watched.history.position
    return {
        "run": watched.run.id,
        "ended": watched.has_ended,
        "training": {
            "task": report.task if report else None,
            "step": report.step if report else None,
            "position": asdict(position) if position else None,
            "per_s": history.rate(),
            "left_s": history.left_s(now),
            "loss": history.losses[-1] if history.losses else None,
            "checkpoint": watched.checkpoint or None,
            "checkpoint_age_s": watched.checkpoint_age_s(now) if watched.checkpoint else None,
        },
        "hosts": [_host(host, now) for host in watched.hosts.values()],
        "tasks": [_task(task) for task in watched.tasks.values()],
    }


def _host(host: WatchedHost, now: float) -> dict[str, Any]:
    use = host.use
    return {
        "host": host.name,
        "away_s": now - host.away_since if host.error else None,
        "error": host.error.message if host.error else None,
        "cpu": host.cpu,
        "cpus": use.cpus if use else None,
        "memory_bytes": use.used_bytes if use else None,
        "memory_total_bytes": use.total_bytes if use else None,
        "received_bytes_s": host.received,
        "sent_bytes_s": host.sent,
        "gpus": [to_json(gpu) for gpu in use.gpus] if use else [],
    }


def _task(task: WatchedTask) -> dict[str, Any]:
    report = {**asdict(task.report)} if task.report else {"state": None}
    place = {"task": str(task.placement.task), "host": task.placement.host}
    return {**report, **place, "cpu": task.cpu, "memory_bytes": task.used_bytes}
