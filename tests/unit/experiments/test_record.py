"""A sweep's record: it is read again, never mixed with other terms, and locked."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tfdeploy.documents import to_json
from tfdeploy.errors import RunError
from tfdeploy.experiments.record import SweepRecord, lock_folder
from tfdeploy.experiments.speed.report import sweep_document
from tfdeploy.experiments.speed.results import FAILED, MEASURED, RUNNING, Cell, Rate, Result, Sweep
from tfdeploy.release import snapshot

TERMS = {"project": "p", "release": "f00d", "hosts.toml": {"training": {"role": "flags"}}}
ONE, TWO = Cell(1, 1), Cell(2, 1)
MEASURED_ONE = Result(ONE, "r1", MEASURED, "", Rate(10.0, 45.0), hosts=("a", "b"))
AGAIN = replace(MEASURED_ONE, run="r5", rate=Rate(12.0, 45.0, "log"), repeat=2)


def empty_sweep(**terms):
    return Sweep({}, {**TERMS, **terms})


def make_record(folder, sweep=None, *results):
    sweep_record = SweepRecord(folder, sweep or empty_sweep())
    for result in results:
        sweep_record.put(result)
    return sweep_record


def refusal(folder, **terms):
    """Return the message that refuses the record in a folder for a sweep with these terms."""
    with pytest.raises(RunError) as error:
        SweepRecord(folder, empty_sweep(**terms))
    assert "--out" in error.value.hint
    return error.value.message


# The results


def test_a_written_record_can_be_read(tmp_path):
    failed = Result(TWO, "r2", FAILED, "worker:1 failed\n  | Traceback")
    written = make_record(tmp_path, None, MEASURED_ONE, failed, Result(Cell(4, 1), "r3"), AGAIN)
    assert make_record(tmp_path).sweep == written.sweep
    assert [result.result for result in written.sweep] == [MEASURED, FAILED, RUNNING]
    assert next(iter(written.sweep)).runs == (MEASURED_ONE, AGAIN)


def test_the_record_is_the_document_of_json(tmp_path):
    written = make_record(tmp_path, None, MEASURED_ONE)
    document = json.loads((tmp_path / "sweep.json").read_text())
    assert document == to_json(sweep_document(written.sweep))
    assert document["base"] == {"ps": 1, "workers": 1}


def test_a_result_replaces_the_older_one_of_its_cell_and_can_be_deleted(tmp_path):
    old, other = Result(ONE, "r0"), Result(TWO, "r2")
    make_record(tmp_path, None, old, MEASURED_ONE, other).delete(other)
    assert make_record(tmp_path).sweep.results == {(ONE, 1): MEASURED_ONE}


def test_a_record_with_other_terms_is_refused_with_what_differs(tmp_path):
    make_record(tmp_path, None, MEASURED_ONE)
    assert refusal(tmp_path, release="beef") == (
        f'{tmp_path} was measured with release = "f00d"; now it is "beef"'
    )
    other = {"training": {"role": "tf_config"}}
    assert 'hosts.toml.training.role = "flags"' in refusal(tmp_path, **{"hosts.toml": other})
    more = {"training": {"role": "flags", "ready": "port"}}
    assert refusal(tmp_path, **{"hosts.toml": more}).endswith(
        'was measured without hosts.toml.training.ready; now it is "port"'
    )


def test_failed_results_with_other_terms_are_accepted(tmp_path):
    make_record(tmp_path, None, Result(ONE, "r0", FAILED, "it failed"))
    again = make_record(tmp_path, empty_sweep(release="beef"))
    assert again.sweep.terms["release"] == "beef"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cells": [{}], "terms": {}}', '{"cells": 1}'])
def test_a_broken_record_is_refused(tmp_path, text):
    (tmp_path / "sweep.json").write_text(text)
    assert str(tmp_path / "sweep.json") in refusal(tmp_path)


def test_a_speed_that_is_not_positive_is_refused(tmp_path):
    make_record(tmp_path, None, MEASURED_ONE)
    document = json.loads((tmp_path / "sweep.json").read_text())
    document["cells"][0]["runs"][0]["steps_per_s"] = 0.0
    (tmp_path / "sweep.json").write_text(json.dumps(document))
    assert "steps_per_s is 0.0" in refusal(tmp_path)


# The folder


def test_a_folder_is_locked_for_one_sweep_at_a_time(tmp_path):
    folder = tmp_path / "sweep"
    with lock_folder(folder), pytest.raises(RunError, match="another sweep is running in"), \
            lock_folder(folder):  # fmt: skip
        pass
    with lock_folder(folder):
        pass


def test_a_folder_that_can_not_be_created_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="can't be written"), lock_folder(tmp_path / "file/sweep"):
        pass


def test_a_sweeps_folder_is_not_part_of_the_source(tmp_path):
    (tmp_path / "train.py").touch()
    before = snapshot.take(tmp_path, ()).id
    for folder in ("sweep", "a/b"):
        with lock_folder(tmp_path / folder):
            make_record(tmp_path / folder, None, MEASURED_ONE)
    assert snapshot.take(tmp_path, ()).id == before


def test_a_folder_with_anything_else_is_refused(tmp_path):
    (tmp_path / "train.py").touch()
    message = "already exists and is not a sweep's folder"
    with pytest.raises(RunError, match=message), lock_folder(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
