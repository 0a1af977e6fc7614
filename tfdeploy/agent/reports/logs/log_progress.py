"""Read training progress off the end of a task's log, for programs that write no event files.

TensorFlow 2.21 comes without TensorBoard, and Keras writes no events by default. Keras prints
`Epoch 3/10` and then `157/157 ━━━━ 2s 12ms/step - accuracy: 0.97 - loss: 0.12` (source:
keras/src/utils/progbar.py), sessions of tf.compat.v1 print what the LoggingTensorHook gets, such as
`step = 120, loss = 0.5`. Only what the last lines say counts. Pure, except for `read`.
"""

from __future__ import annotations

import re

from ....shared import TYPE_CHECKING
from ....shared.log_patterns import BATCH, EPOCH, ESCAPE, LOSS, STEP
from ....shared.records import LogProgress
from ..progress import read_end

if TYPE_CHECKING:
    from typing import List, Match, Optional

TAIL_BYTES = 1 << 16
WAITING_LINES = 100  # TensorFlow repeats the lines for all tasks that it waits for every 10 s
# Source: tensorflow/core/distributed_runtime/master.cc, RemoteWorkerCreate.
WAITING = re.compile(
    r"CreateSession still waiting for response from worker: /job:(\w+)/replica:\d+/task:(\d+)"
)


def read(log: str) -> LogProgress:
    """Return what the end of the log says. Never raises."""
    return parse(read_end(log, TAIL_BYTES).decode(errors="replace"))


def parse(text: str) -> LogProgress:
    """Return what the lines say, of which the first may be incomplete.

    A progress bar rewrites its line: "\\r" ends a line here, too.
    """
    lines = [ESCAPE.sub("", line) for line in re.split(r"[\r\n\b]+", text) if line.strip()]
    epoch = batch = step = loss = None
    for line in lines:
        begins = EPOCH.match(line)
        if begins:
            epoch, batch = begins, None
        batch = BATCH.match(line) or batch
        step = STEP.search(line) or step
        loss = LOSS.search(line) or loss
    return LogProgress(
        epoch=_number(epoch, 1),
        epochs=_number(epoch, 2),
        batch=_number(batch, 1),
        batches=_number(batch, 2),
        step=_number(step, 1),
        loss=loss[1] if loss else "",
        waits_for=_waited_for(lines[-WAITING_LINES:]),
    )


def _number(match: Optional[Match[str]], group: int) -> Optional[int]:
    """Return a group as a number; None if the log does not have it."""
    return int(match[group]) if match and match[group] else None


def _waited_for(lines: List[str]) -> List[str]:
    """Return the tasks of the waiting lines at the end: none if another line came after them."""
    found = []
    for line in reversed(lines):
        match = WAITING.search(line)
        if not match:
            break
        found.append("{}:{}".format(match[1], match[2]))
    return sorted(set(found))
