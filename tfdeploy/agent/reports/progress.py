"""Read training progress from TensorBoard's event files and from logs, without TensorFlow.

An event file is a chain of records `u64 length, u32 crc of the length, data, u32 crc of the data`,
little-endian; the crcs are masked CRC-32C (source: tensorflow/core/lib/io/record_writer.h). The
data is an Event: field 1 is the wall time as a double, field 2 the step, field 5 a summary (source:
tensorflow/core/util/event.proto). No file is read whole: reading can start anywhere in the chain,
because the crc distinguishes a length from other bytes.

Logs are for programs that write no event files: TensorFlow 2.21 comes without TensorBoard, and
Keras writes no events by default. Only what the last lines say counts; shared/log_patterns.py has
their formats.
"""

from __future__ import annotations

import math
import os
import re
import struct
import time
from typing import List, Optional, Tuple

from ...shared.event_records import events, read_varint
from ...shared.filesystem import read_end
from ...shared.log_patterns import BATCH, EPOCH, ESCAPE, KERAS_BATCH, LOSS, OTHER_BAR, STEP
from ...shared.protocol.record import Record
from ...shared.records import LogProgress
from ..outputs.event_files import EventFile

MAX_FILES = 4
TAIL_SIZES = (1 << 16, 1 << 20)  # an image or a graph is one record and may fill the first
LOG_BYTES = 1 << 16
WAITING_LINES = 100  # TensorFlow repeats the lines for all tasks that it waits for every 10 s
# Source: tensorflow/core/distributed_runtime/master.cc, RemoteWorkerCreate.
WAITING = re.compile(
    r"CreateSession still waiting for response from worker: /job:(\w+)/replica:\d+/task:(\d+)"
)
STEP_KEY, SUMMARY_KEY = b"\x10", b"\x2a"  # field 2, a varint; field 5, with a length


class Progress(Record):
    """The highest step that training reached, and how many seconds ago it was first written."""

    step: int
    age_s: float


def last_step(files: List[EventFile]) -> Optional[Progress]:
    """Return the last step in the newest event file, or None if no file has a step.

    A file without a step, as after a restart, is skipped in favor of the one before it. Reads at
    most MAX_FILES files and the last megabyte of each. Never raises.
    """
    for file in sorted(files, key=lambda file: (-file.changed, file.path))[:MAX_FILES]:
        for size in TAIL_SIZES:
            found = _highest_step(read_end(file.full_path, size))
            if found is not None:
                step, at = found
                return Progress(step, max(0.0, time.time() - at))
    return None


def quiet_s(log: str, files: List[EventFile]) -> Optional[float]:
    """Return the seconds since the log or any event file changed; None if none exists."""
    changes = [file.changed for file in files]
    try:
        changes.append(os.stat(log).st_mtime)
    except OSError:
        pass
    return max(0.0, time.time() - max(changes)) if changes else None


def _highest_step(data: bytes) -> Optional[Tuple[int, float]]:
    """Return the highest step and the time of its first event. Pure."""
    highest: Optional[Tuple[int, float]] = None
    for event in events(data):
        step, at = _step(event), struct.unpack("<d", event[1:9])[0]
        if step is not None and math.isfinite(at) and (highest is None or step > highest[0]):
            highest = step, at
    return highest


def _step(event: bytes) -> Optional[int]:
    """Return the event's step; None if it has none or a negative one."""
    key = event[9:10]
    if key == SUMMARY_KEY:
        return 0  # proto3 does not write zeros: a summary without a step belongs to step 0
    if key != STEP_KEY:
        return None
    try:
        step, _ = read_varint(event, 10)
    except (IndexError, ValueError):
        return None
    return None if step >> 63 else step


# Logs


def read_log(log: str) -> LogProgress:
    """Return what the end of the log says. Never raises."""
    return parse_log(read_end(log, LOG_BYTES).decode(errors="replace"))


def parse_log(text: str) -> LogProgress:
    """Return what the lines say, of which the first may be incomplete.

    A progress bar rewrites its line: "\\r" ends a line here, too.
    """
    lines = [ESCAPE.sub("", line) for line in re.split(r"[\r\n\b]+", text) if line.strip()]
    epoch = epochs = batch = batches = step = loss = None
    for line in lines:
        begins = EPOCH.search(line)
        if begins and begins[1] != epoch:
            epoch, epochs, batch, batches = begins[1], begins[2], None, None
        found = _find_batch(line, begins.end() if begins else 0)
        batch, batches = found or (batch, batches)
        step = STEP.search(line) or step
        loss = LOSS.search(line) or loss
    return LogProgress(
        epoch=_number(epoch),
        epochs=_number(epochs),
        batch=_number(batch),
        batches=_number(batches),
        step=_number(step[1] if step else None),
        loss=loss[1] if loss else "",
        waits_for=_waited_for(lines[-WAITING_LINES:]),
    )


def _find_batch(line: str, start: int) -> Optional[Tuple[str, Optional[str]]]:
    """Return the batch of a line, and their number if the line has it, from a position on; None if
    the line has no batch."""
    match = KERAS_BATCH.match(line) or (not OTHER_BAR.match(line) and BATCH.search(line, start))
    if not match:
        return None
    number, *total = filter(None, match.groups())
    return number, total[0] if total else None


def _number(digits: Optional[str]) -> Optional[int]:
    return int(digits) if digits else None


def _waited_for(lines: List[str]) -> List[str]:
    """Return the tasks of the waiting lines at the end: none if another line came after them."""
    found = []
    for line in reversed(lines):
        match = WAITING.search(line)
        if not match:
            break
        found.append("{}:{}".format(match[1], match[2]))
    return sorted(set(found))
