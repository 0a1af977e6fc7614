"""A host refuses a request of a controller whose record of the run is older than its own."""

from __future__ import annotations

import pytest

from tfdeploy.agent import paths
from tfdeploy.agent.refusal import Refusal
from tfdeploy.agent.runs import run_record
from tfdeploy.shared.protocol.runs import RunRecord


def test_an_older_record_is_refused_and_an_equal_or_unknown_one_is_not(root):
    run_record.refuse_outdated("p", "r", 1)  # the host has none
    (root / "p" / "runs" / "r").mkdir(parents=True)
    run_record.store("p", "r", RunRecord(starts=12, run="{}", hosts='"starts": 99'))
    run_record.refuse_outdated("p", "r", 12)
    with pytest.raises(Refusal, match="run r was resumed or scaled") as refused:
        run_record.refuse_outdated("p", "r", 11)
    assert refused.value.outdated
    with open(paths.record("p", "r"), "w") as file:
        file.write("{")
    run_record.refuse_outdated("p", "r", 11)  # a broken one decides nothing


def test_another_launch_with_as_many_starts_is_refused_unless_one_of_them_is_unknown(root):
    (root / "p" / "runs" / "r").mkdir(parents=True)
    record = RunRecord(starts=2, run="{}", hosts="", launched="b" * 16)
    run_record.store("p", "r", record)
    for starts, launched in ((2, "b" * 16), (3, "a" * 16), (2, "")):
        run_record.refuse_outdated("p", "r", starts, launched)
    with pytest.raises(Refusal):
        run_record.refuse_outdated("p", "r", 2, "a" * 16)
