"""The parameters of a trial, as TensorBoard's HParams plugin reads them from an event file.

Source: tensorboard/plugins/hparams/summary.py, whose import would load TensorFlow.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING

from tfdeploy.commands.trials import OF_TRIAL
from tfdeploy.shared.event_records import EVENTS, masked_crc
from tfdeploy.shared.trials import ENDED, FAILED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdeploy.commands.trials import Trial, TrialsResult
    from tfdeploy.run import Run

# TensorBoard reads the files of a folder by name: this is before all others.
NAME = f"{EVENTS}0.parameters"
SUCCESS, FAILURE = 1, 2  # of tensorboard/plugins/hparams/api.proto
FLOAT = 1  # of tensorflow/core/framework/types.proto


def write(run: Run, trials: TrialsResult | None) -> None:
    """Write the parameters of the trials whose events are on the controller beside these."""
    own = run.open() / "events"
    numbers = {int(match[1]) for path in own.files() if (match := OF_TRIAL.match(path))}
    for trial in trials.trials if trials else ():
        data, file = b"".join(records(trial)), f"trials/{trial.number}/{NAME}"
        if trial.number in numbers and own.size(file) != len(data):
            with suppress(OSError):  # a full disk, or a folder of this name
                own.write(file, [data])


def records(trial: Trial) -> Iterator[bytes]:
    """Yield the content of an event file: the trial's parameters and, if it has ended, how."""
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    begin = HParamsPluginData()
    begin.session_start_info.start_time_secs = (trial.at or 0.0) - (trial.seconds or 0.0)
    for name, text in trial.parameters.items():
        value = begin.session_start_info.hparams[name]
        value.string_value = text
        with suppress(ValueError):
            if math.isfinite(float(text)):
                value.number_value = float(text)
    yield _record("_hparams_/session_start_info", begin.SerializeToString())
    if trial.state in ENDED:
        end = HParamsPluginData()
        end.session_end_info.status = FAILURE if trial.state == FAILED else SUCCESS
        end.session_end_info.end_time_secs = trial.at or 0.0
        yield _record("_hparams_/session_end_info", end.SerializeToString())


def _record(tag: str, content: bytes) -> bytes:
    from tensorboard.compat.proto.event_pb2 import Event

    event = Event(wall_time=1.0)
    value = event.summary.value.add(tag=tag)
    value.metadata.plugin_data.plugin_name = "hparams"
    value.metadata.plugin_data.content = content
    value.tensor.dtype = FLOAT
    value.tensor.tensor_shape.dim.add()
    data: bytes = event.SerializeToString()
    length = len(data).to_bytes(8, "little")
    return length + masked_crc(length) + data + masked_crc(data)
