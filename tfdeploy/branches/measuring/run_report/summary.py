"""Say in short how runs were started, how they ended, and which commands do it again; of several
runs side by side, with differences marked and shared charts."""

from __future__ import annotations

import json
import math
import shlex
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tfdeploy.branches.measuring import history, metrics
from tfdeploy.branches.measuring.run_report import charts
from tfdeploy.branches.measuring.run_report.over_time import TrainedRun
from tfdeploy.branches.measuring.scalars import of_same_clock, step_times
from tfdeploy.config import redact
from tfdeploy.formatting.hostlist import fold_names
from tfdeploy.formatting.humanize import (
    escape_line,
    format_count,
    format_duration,
    format_job_counts,
)
from tfdeploy.output import trial_table
from tfdeploy.run import labels as run_labels
from tfdeploy.shared import uv_and_pip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tfdeploy.branches.measuring.metrics import Reached
    from tfdeploy.branches.measuring.run_report.facts import RunFacts
    from tfdeploy.run import Run

MAX_METRICS = 4
MAX_COMMIT = 12
HOSTS_FILE = "hosts.toml"
UNMARKED = ("Run", "Name", "Started")  # they always differ
IN_OTHER_ROWS = ("Release", "Project")
VARIABLES = ("env", "role_env")
WORDS = ("command", "role_args")
MAX_VALUE = 400
ABSENT = "–"


def summary(facts: RunFacts) -> tuple[tuple[str, str], ...]:
    """Return the facts in short, as pairs of a name and a value."""
    run = facts.run
    values = (
        ("Words", facts.redact(" ".join(redact.show_words(run.words)))),
        ("Result", facts.result),
        ("Project", run.inventory.project),
        ("Run", run.id),
        ("Name", run.name),
        ("Started", format_time(facts.started_s)),
        ("Duration", format_length(facts.duration_s)),
        ("Tasks", format_job_counts(Counter(p.task.job for p in run.plan.placements))),
        ("Hosts", str(len(run.plan.hosts))),
        ("Restarts", str(sum(restarts_of(facts).values()))),
        *_last_scalars(facts),
        ("Trials", trial_table.summary(facts.trials) if facts.trials else ""),
        ("Release", run.release),
        ("Commit", _commit(run)),
        *((f"Data {place}", release) for place, release in run.data.items()),
    )
    return tuple((name, value) for name, value in values if value)


def not_committed(run: Run) -> list[str]:
    """Return the files that differed from the commit when the run started."""
    start, lines = "+++ b/", run.source.get("diff", "").splitlines()
    return [line[len(start) :] for line in lines if line.startswith(start)]


def _commit(run: Run) -> str:
    """Return the commit, its branch, and how many files differ from it; "" if git says nothing."""
    if not run.source:
        return ""
    branch = f" on {run.source['branch']}" if run.source.get("branch") else ""
    changed = format_count(len(not_committed(run)), "file")
    more = f", {changed} not committed" if run.source.get("diff") else ""
    return escape_line(f"{run.source.get('commit', '')[:MAX_COMMIT]}{branch}{more}")


def format_time(seconds: float) -> str:
    """Return `2026-11-22 23:57:56 UTC`, or "unknown"."""
    if not 0 <= seconds < history.LAST_SECOND:  # also NaN; the time of a file can be any number
        return "unknown"
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def format_length(seconds: float) -> str:
    """Return a duration, or "unknown"."""
    return format_duration(max(seconds, 0.0)) if math.isfinite(seconds) else "unknown"


def restarts_of(facts: RunFacts) -> dict[str, int]:
    """Return the restarts of each task that are known."""
    histories = facts.histories.items()
    return {task: max((c.restarts for c in changes), default=0) for task, changes in histories}


def _last_scalars(facts: RunFacts) -> Iterator[tuple[str, str]]:
    """Yield the last step, the mean speed, and what each metric reached."""
    main = metrics.main_loss(list(facts.scalars))
    steps = step_times(of_same_clock(facts.scalars, main))
    if steps:
        speed = history.steps_per_s(steps, facts.pauses)
        yield "Last step", str(steps[-1].step)
        yield "Steps/s", f"{speed:.3g}" if math.isfinite(speed) else ""
    for metric in metrics.metrics(facts.scalars or facts.log_losses)[:MAX_METRICS]:
        name = escape_line(metric.name)
        yield name[:1].upper() + name[1:], _reached_text(metric.training)
        yield f"Validation {name}", _reached_text(metric.validation)


def _reached_text(reached: Reached | None) -> str:
    """Return `0.25 (best 0.2)`; "" if unknown."""
    if not reached:
        return ""
    best = f" (best {reached.best:.4g})" if reached.best != reached.last else ""
    return f"{reached.last:.4g}{best}"


def recorded_hosts(run: Run) -> str:
    """Return the commands that start the run's release with the hosts.toml of its record, which
    has its words, variables and ports, too."""
    copy = f"hosts.{run.id}.toml"
    name = f" --name {shlex.quote(run.name)}" if run.name else ""
    return (
        f"cp runs/{run.id}/{HOSTS_FILE} {copy}\n"
        f"tfdeploy run --hosts {copy} --release {shlex.quote(run.release)}{name}"
    )


# Side by side


def compare(all_facts: Sequence[RunFacts]) -> dict[str, object]:
    """Return what a page about several runs has besides: a table, charts with a line for each run,
    and their legend."""
    if len(all_facts) == 1:
        return {"comparison": (), "shared_charts": (), "labels": ()}
    labels = run_labels([facts.run for facts in all_facts])
    runs = [replace(trained(f), label=label) for f, label in zip(all_facts, labels, strict=True)]
    drawn, _ = charts.draw(runs, "all")
    return {"comparison": _comparison_rows(all_facts), "shared_charts": drawn, "labels": labels}


def trained(facts: RunFacts) -> TrainedRun:
    """Return the scalars and the use of GPUs of a run with the start of their time axis."""
    start = _scalars_start(facts)
    return TrainedRun(facts.label, start, facts.scalars, facts.log_losses, facts.gpus, facts.pauses)


def _scalars_start(facts: RunFacts) -> float:
    """Return the run's start, or that of its first scalar if the clocks of the hosts differ."""
    times = [facts.started_s, *(series[0].time_s for series in facts.scalars.values())]
    return min((time for time in times if math.isfinite(time)), default=math.nan)


def _comparison_rows(all_facts: Sequence[RunFacts]) -> tuple[DifferenceRow, ...]:
    def redact(text: str) -> str:
        for facts in all_facts:
            text = facts.redact(text)
        return text

    summaries = [dict(summary(facts)) for facts in all_facts]
    keys = dict.fromkeys(key for each in summaries for key in each)
    shown = [key for key in keys if key not in IN_OTHER_ROWS]
    rows = []
    for key in shown:
        values = tuple(each.get(key, ABSENT) for each in summaries)
        rows.append(DifferenceRow(key, values, len(set(values)) > 1 and key not in UNMARKED))
    return (*rows, *different_settings([facts.run for facts in all_facts], redact))


@dataclass(frozen=True)
class DifferenceRow:
    """A key and its value in each run. `differs` compares the real values, also hidden ones."""

    key: str
    values: tuple[str, ...]
    differs: bool


def different_settings(
    runs: Sequence[Run], redact_text: Callable[[str], str]
) -> tuple[DifferenceRow, ...]:
    """Return a row for the release, the data sets, and for each key of hosts.toml and each version
    of a package or a driver that differs; `redact_text` hides the values of secrets. Versions count
    if they were collected of all runs."""
    settings = [dict(_settings(run)) for run in runs]
    versions = [dict(_versions(run)) for run in runs]
    if all(versions):
        settings = [{**a, **b} for a, b in zip(settings, versions, strict=True)]
    keys = dict.fromkeys(key for each in settings for key in each)
    found = []
    for key in keys:
        pairs = [each.get(key, ("", ABSENT)) for each in settings]
        differs = len({real for real, _ in pairs}) > 1
        if differs or key == "release":
            found.append(
                DifferenceRow(key, tuple(redact_text(shown) for _, shown in pairs), differs)
            )
    return tuple(found)


def _settings(run: Run) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each key with its real value, and with the value to show."""
    yield "release", (run.release, run.release)
    for place, release in run.data.items():
        yield f"data {place}", (release, release)
    source = run.source
    for key in ("commit", "branch"):
        yield key, (source.get(key, ""), source.get(key, "")[:MAX_COMMIT] or ABSENT)
    changed = ", ".join(not_committed(run)) or ABSENT
    yield "not committed", (source.get("diff", ""), changed[:MAX_VALUE])
    environments = ", ".join(sorted({*run.environments.values()}))
    yield "environment", (environments, environments or ABSENT)
    inventory = run.inventory
    table = inventory.to_values({"file", "hosts"})
    yield from _flatten(table, ())
    for host in inventory.hosts:
        values = host.to_toml()
        values.pop("address", None)
        if host.name in run.auto_ports:
            values["ports"] = "auto"  # as hosts.toml says it; the start has chosen some
        yield from _flatten(values, ("hosts", host.name))


def _versions(run: Run) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the versions of what was installed, as `_settings` does, with the hosts that differ."""
    hosts: dict[str, dict[str, list[str]]] = {}
    for host in run.plan.hosts:
        task = run.plan.placements_on(host)[-1].task  # the last one: a ps may need no packages
        file = run.folder / "logs" / f"{task.file_name}.history.jsonl"
        for name, version in history.read_versions(file).items():
            hosts.setdefault(name, {}).setdefault(version, []).append(host)
    for name, found in hosts.items():
        shown = [f"{version} on {fold_names(on)}" for version, on in found.items()]
        text = ", ".join(shown) if len(found) > 1 else next(iter(found))
        yield f"version of {name}", (json.dumps(sorted(found)), text[:MAX_VALUE])


def _flatten(value: object, path: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, str]]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _flatten(item, (*path, name))
    elif value is not None:
        yield ".".join(path), (json.dumps(value, sort_keys=True), _show(value, path))


def _show(value: object, path: tuple[str, ...]) -> str:
    if path[0] == "notify":  # the URL of a chat lets anybody write to it
        return redact.HIDDEN
    if path[0] == "env":
        return redact.HIDDEN if path[-1] == "setup" else _show_requirements(value)
    if len(path) > 1 and path[-2] in VARIABLES:
        return redact.show_variable(path[-1], str(value))
    if path[-1] in WORDS and isinstance(value, list):
        return " ".join(redact.show_words([str(word) for word in value]))[:MAX_VALUE]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text[:MAX_VALUE]


def _show_requirements(value: object) -> str:
    """Return the packages, or the version of Python, without the passwords of URLs."""
    lines = value if isinstance(value, list) else [value]
    return ", ".join(uv_and_pip.clean(str(line)) for line in lines)[:MAX_VALUE]
