"""The parameters of trials, as TensorBoard reads them."""

from __future__ import annotations

import pytest
from support.builders import make_run
from support.events import NAME, scalar, version
from support.finished import START

from tfdeploy.commands.following.tensorboard import board, hparams
from tfdeploy.commands.trials import Trial
from tfdeploy.shared.trials import BAD, FAILED, RUNNING, SUCCEEDED, TrialRecord, to_line

LOADER = pytest.importorskip("tensorboard.backend.event_processing.event_file_loader")


@pytest.mark.parametrize(
    ("state", "status"), [(SUCCEEDED, [1]), (BAD, [1]), (FAILED, [2]), (RUNNING, [])]
)
def test_tensorboard_reads_the_parameters_and_the_end_of_a_trial(tmp_path, state, status):
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    trial = Trial(3, {"lr": "0.5", "net": "a", "cap": "inf"}, state, seconds=5.0, at=15.0)
    file = tmp_path / hparams.NAME
    file.write_bytes(b"".join(hparams.records(trial)))
    events = [*LOADER.LegacyEventFileLoader(str(file)).Load()]
    found = [HParamsPluginData.FromString(event.summary.value[0].metadata.plugin_data.content)
             for event in events]  # fmt: skip
    values = found[0].session_start_info.hparams
    assert values["lr"].number_value == 0.5
    assert (values["net"].string_value, values["cap"].string_value) == ("a", "inf")
    assert found[0].session_start_info.start_time_secs == 10.0
    assert [each.session_end_info.status for each in found[1:]] == status


def test_a_trial_with_events_has_its_parameters_beside_them_with_its_end_when_it_is_known(tmp_path):
    run = make_run(tmp_path, top="[trials]\npoints = [{lr = '0.1'}, {lr = '0.2'}]\n")
    events = run.folder / "events" / "trials" / "1" / "logs" / NAME
    events.parent.mkdir(parents=True)
    events.write_bytes(version() + scalar(1, 1.0))
    board.prepare_events(run)
    (file,) = (run.folder / "events").rglob(hparams.NAME)
    assert file.parent == run.folder / "events" / "trials" / "1"
    begin = file.read_bytes()
    journal = run.folder / "logs" / "worker-0.trials.jsonl"
    journal.parent.mkdir()
    journal.write_bytes(to_line(TrialRecord(1, 1, SUCCEEDED, "worker:0", at=START)))
    board.prepare_events(run)
    assert len(file.read_bytes()) > len(begin)
    assert board.events_of(run) == [events.stat().st_size]


def test_a_host_that_takes_the_place_of_a_trials_parameters_stops_nothing(tmp_path):
    run = make_run(tmp_path, top="[trials]\npoints = [{lr = '0.1'}, {lr = '0.2'}]\n")
    for path in (f"0/{hparams.NAME}/{NAME}", f"1/{NAME}"):
        events = run.folder / "events" / "trials" / path
        events.parent.mkdir(parents=True)
        events.write_bytes(version())
    board.prepare_events(run)
    assert (events.parent / hparams.NAME).is_file()
