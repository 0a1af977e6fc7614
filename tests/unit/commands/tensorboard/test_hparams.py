"""The parameters of trials, as TensorBoard reads them."""

from __future__ import annotations

from support.builders import make_run
from support.events import NAME, scalar, version
from support.finished import START

from tfdeploy.commands.tensorboard import board, hparams
from tfdeploy.shared.trials import SUCCEEDED, TrialRecord, to_line


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
