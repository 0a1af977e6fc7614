"""Fetch the event files of the chief and the evaluator, and the logs of all tasks.

runs/<run>/events/                the chief's
runs/<run>/events/evaluator-0/    the evaluator's, if it has its own directory for them
runs/<run>/logs/                  every task's, each with <task>.history.jsonl: its states so far,
                                  <task>.gpus.jsonl: the use of its GPUs, and <task>.pace.jsonl:
                                  its steps, and its host's counters; with trials, and
                                  <task>.trials.jsonl: those of a slot
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.errors import AgentError, TransferFailed
from tfdeploy.folders.own_folder import Budget
from tfdeploy.results.fetch import FileFetch, announced
from tfdeploy.results.run_folder import task_request
from tfdeploy.shared.event_records import EVENTS
from tfdeploy.shared.filesystem import GONE
from tfdeploy.shared.protocol.outputs import ListEvents
from tfdeploy.shared.protocol.reports import Logs
from tfdeploy.shared.records import MAX_LOG_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.pipeline import Pipeline, Steps
    from tfdeploy.planning.plan import Placement
    from tfdeploy.run import Run

# What one collect may add of a task's event files. Nobody announces their size, because they grow.
EVENTS_BYTES = 4 << 30
MAX_NAMED = 3
HISTORIES = ("history", "gpus", "pace", "trials")


@dataclass(frozen=True)
class Fetched:
    """The number of event files, or of logs, that came, and why others did not."""

    count: int
    errors: tuple[TransferFailed, ...]


def fetch_events(pipeline: Pipeline, run: Run, placement: Placement) -> Steps[Fetched]:
    """Fetch the event files of a task that `has_events`. Raises as `FileFetch` does, and
    OSError."""
    listed = pipeline.send(ListEvents(**task_request(run, placement)))
    yield
    folders = listed.answer().folders
    names = [name for names in folders.values() for name in names]
    for name in names:
        if EVENTS not in name.rpartition("/")[2]:
            raise AgentError(pipeline.agent.host, f"it names a file {name!r:.80}, which is refused")
    below = "" if _is_first(run, placement) else f"/{placement.task.file_name}"
    dest = (run.open() / f"events{below}").within(Budget(EVENTS_BYTES))
    fetches = [
        (source, FileFetch(pipeline, source, dest, files)) for source, files in folders.items()
    ]
    yield
    missing = [path for source, fetch in fetches for path in _paths(source, fetch.receive())]
    return Fetched(len(names) - len(missing), _errors(pipeline.agent, missing))


def has_events(run: Run, placement: Placement) -> bool:
    """Return whether a task's events are fetched: the chief's, evaluators' and slots'. Those of
    other workers repeat them."""
    return _is_first(run, placement) or placement.task.job == "evaluator"


def _is_first(run: Run, placement: Placement) -> bool:
    return placement == run.plan.chief or bool(run.inventory.trials.points)


def fetch_logs(pipeline: Pipeline, run: Run, placements: Sequence[Placement]) -> Steps[Fetched]:
    """Fetch the logs of one host's tasks, with the older part of a rotated log and the
    tasks' histories. Raises as `FileFetch` does, and OSError."""
    listed = pipeline.send(Logs(run.inventory.project, run.id))
    yield
    answer = listed.answer()
    dest = (run.open() / "logs").within(announced(len(placements) * MAX_LOG_BYTES))
    tasks = [placement.task.file_name for placement in placements]
    names = [f"{task}.log" for task in tasks]
    histories = [f"{task}.{name}.jsonl" for task in tasks for name in HISTORIES]
    wanted = [*(name for log in names for name in (f"{log}.1", log)), *histories]
    present = [name for name in wanted if name in answer.names]
    fetch = FileFetch(pipeline, answer.folder, dest, present)
    yield
    missing = {**_gone(tasks, answer.names), **fetch.receive()}
    arrived = {*present}.difference(missing)
    errors = _errors(pipeline.agent, _paths(answer.folder, missing))
    return Fetched(len(arrived & {*names}), errors)


def _gone(tasks: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return the logs that were deleted: those of tasks that have a history. While a log is
    rotated, only its next file is there."""
    there = {*names}
    started = (f"{task}.log" for task in tasks if f"{task}.history.jsonl" in there)
    return {log: GONE for log in started if there.isdisjoint((log, f"{log}.new"))}


def _paths(folder: str, missing: dict[str, str]) -> list[tuple[str, str]]:
    """Return the paths on the host of the files that did not come, and why."""
    return [(f"{folder}/{name}", why) for name, why in missing.items()]


def _errors(agent: Agent, problems: Sequence[tuple[str, str]]) -> tuple[TransferFailed, ...]:
    """Return why files did not come. A host may have many of them: the first ones are named."""
    more = f", as {len(problems) - MAX_NAMED} more do not" if len(problems) > MAX_NAMED else ""
    return tuple(
        TransferFailed(agent.host, f"{path} does not come: it {why}{more}", _hint(why))
        for path, why in problems[:MAX_NAMED]
    )


def _hint(why: str) -> str:
    return "tfdeploy fetch fetches a file of any size" if "larger" in why else ""
