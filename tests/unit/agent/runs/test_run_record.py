"""A host refuses a request of a controller whose record of the run is older than its own."""

from __future__ import annotations

import pytest

from tfdeploy.agent import paths
from tfdeploy.agent.protocol.runs import RunRecord
from tfdeploy.agent.refusal import Refusal
from tfdeploy.agent.runs import run_record


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
