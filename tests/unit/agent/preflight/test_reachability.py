"""A host asks which tasks of a run answer."""

from __future__ import annotations

import os

from support.builders import make_launch
from support.ports import ADDRESS, free_port

from tfdeploy.agent import paths
from tfdeploy.agent.preflight import reachability
from tfdeploy.shared import records
from tfdeploy.shared.protocol.preflight import Peer
from tfdeploy.shared.records import NOT_LISTENING, TaskState


def test_a_guarded_task_that_has_left_this_host_explains_no_refusal(root, monkeypatch):
    left = paths.task("p", "r", "worker:0")
    os.makedirs(left)
    records.write(paths.launch(left), records.to_json(make_launch(network="guarded")))
    records.write(paths.state(left), records.to_json(TaskState("STOPPED", 0.0)))
    monkeypatch.setattr(reachability, "refusing_user", lambda *_: "bob")
    peer = Peer("ps:0", "", ADDRESS, free_port())
    found = reachability.peers("p", "r", [peer], 5.0)
    assert [each.verdict for each in found.peers] == [NOT_LISTENING]
