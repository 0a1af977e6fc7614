"""The parameters of trials, as the real TensorBoard reads them."""

from __future__ import annotations

import pytest

from tfdeploy.commands.tensorboard import hparams
from tfdeploy.commands.trials import Trial
from tfdeploy.shared.trials import BAD, FAILED, RUNNING, SUCCEEDED


@pytest.mark.parametrize(
    ("state", "status"), [(SUCCEEDED, [1]), (BAD, [1]), (FAILED, [2]), (RUNNING, [])]
)
def test_tensorboard_reads_the_parameters_and_the_end_of_a_trial(tmp_path, state, status):
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    trial = Trial(3, {"lr": "0.5", "net": "a", "cap": "inf"}, state, seconds=5.0, at=15.0)
    file = tmp_path / hparams.NAME
    file.write_bytes(b"".join(hparams.records(trial)))
    events = [*LegacyEventFileLoader(str(file)).Load()]
    found = [HParamsPluginData.FromString(event.summary.value[0].metadata.plugin_data.content)
             for event in events]  # fmt: skip
    values = found[0].session_start_info.hparams
    assert values["lr"].number_value == 0.5
    assert (values["net"].string_value, values["cap"].string_value) == ("a", "inf")
    assert found[0].session_start_info.start_time_secs == 10.0
    assert [each.session_end_info.status for each in found[1:]] == status
