"""The verb `list_trials`: what this host has recorded of a run's trials."""

from __future__ import annotations

import glob
import os
import time
from typing import Iterator

from ...shared.filesystem import read_bytes
from ...shared.protocol.message import parse_lines
from ...shared.protocol.record import replace
from ...shared.protocol.reports import RecordedTrials
from ...shared.trials import RUNNING, TrialRecord, newest
from .. import paths


def list_trials(project: str, run: str) -> RecordedTrials:
    """Return the newest record of each trial that any slot of this host has recorded."""
    now, records = time.time(), newest(_records(paths.logs(project, run))).values()
    return RecordedTrials(
        [_with_age(each, now) if each.state == RUNNING else each for each in records]
    )


def _with_age(record: TrialRecord, now: float) -> TrialRecord:
    return replace(record, seconds=round(max(0.0, now - record.at), 3))


def _records(folder: str) -> Iterator[TrialRecord]:
    for file in sorted(glob.glob(os.path.join(glob.escape(folder), "*.trials.jsonl"))):
        try:
            yield from parse_lines(TrialRecord, read_bytes(file))
        except OSError:  # the run was deleted
            continue
