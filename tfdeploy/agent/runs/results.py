"""The verb `results`: list, file by file, what `prune` would delete with runs."""

from __future__ import annotations

import os

from .. import TYPE_CHECKING, paths, records
from ..outputs import listing, state_file
from ..outputs.units import Unit
from ..protocol.outputs import RunResult, RunResults
from ..records import Launch
from ..supervision.replication import output_replicas, replicas
from . import disk

if TYPE_CHECKING:
    from typing import Iterator, List

    from ..protocol.outputs import OutputUnit

CHECKPOINT = "checkpoint"
MAX_PER_TASK = 1000


def results(project: str, runs: List[str]) -> RunResults:
    """List the results of each run.

    These are the files that the controller collects, if they are stored in the run's folder. Of
    checkpoints only the newest is listed; replicas count as the chief's.
    """
    return RunResults({run: list(_run_results(project, run)) for run in runs})


def _run_results(project: str, run: str) -> Iterator[RunResult]:
    chief = ""
    for task, task_dir in sorted(disk.task_dirs(project, run).items()):
        try:
            launch = records.load(Launch, paths.launch(task_dir))
        except (OSError, ValueError, TypeError):
            continue
        chief = launch.heartbeat.chief
        outputs = listing.outputs(project, run, task).outputs
        in_run = [unit for unit in outputs if not unit.path.startswith("/")]
        if launch.is_chief and not os.path.isabs(launch.checkpoint_dir):
            yield from _newest_checkpoint(chief, paths.checkpoints(task_dir, launch.checkpoint_dir))
        for unit in in_run[:MAX_PER_TASK]:
            yield _result(unit, task, launch.is_chief)
    yield from _newest_checkpoint(chief, replicas.replica_dir(project, run))
    for unit in output_replicas.replicated_outputs(project, run).outputs[:MAX_PER_TASK]:
        yield _result(unit, chief, is_chief=True)


def _result(unit: OutputUnit, task: str, is_chief: bool) -> RunResult:
    return RunResult(**vars(unit), task=task, is_chief=is_chief)


def _newest_checkpoint(task: str, folder: str) -> Iterator[RunResult]:
    """Yield the newest complete checkpoint of a folder, if there is one."""
    for name in state_file.read(folder)[:1]:
        files = {}
        for file in state_file.file_set(os.listdir(folder), name) or ():
            info = os.stat(os.path.join(folder, file))
            files[file] = (info.st_size, info.st_mtime_ns)
        if files:
            yield _result(Unit(name, CHECKPOINT, files).to_message(), task, is_chief=True)
