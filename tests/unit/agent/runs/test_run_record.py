"""A host refuses a request of a controller whose record of the run is older than its own."""

from __future__ import annotations

import json
import os

import pytest

from tfdeploy.agent import paths
from tfdeploy.agent.refusal import Refusal
from tfdeploy.agent.runs import run_record
from tfdeploy.shared.protocol.runs import RunRecord


def test_an_older_record_is_refused_and_an_equal_or_unknown_one_is_not(root):
    run_record.refuse_outdated("p", "r", 1, "", None)  # the host has none
    (root / "p" / "runs" / "r").mkdir(parents=True)
    run_record.store("p", "r", RunRecord(starts=12, run="{}", hosts='"starts": 99'))
    run_record.refuse_outdated("p", "r", 12, "", None)
    with pytest.raises(Refusal, match="run r was resumed or scaled") as refused:
        run_record.refuse_outdated("p", "r", 11, "", None)
    assert refused.value.outdated
    # Seconds since 1970: the clock of the controller that started it had lost its battery.
    run_record.store("p", "r", RunRecord(starts=1_800_000_000, run="{}", hosts=""))
    with pytest.raises(Refusal, match="run r was resumed or scaled"):
        run_record.refuse_outdated("p", "r", 1_799_999_999, "", None)
    with open(paths.record("p", "r"), "w") as file:
        file.write("{")
    run_record.refuse_outdated("p", "r", 11, "", None)  # a broken one decides nothing


def test_another_launch_with_as_many_starts_is_refused(root):
    (root / "p" / "runs" / "r").mkdir(parents=True)
    record = RunRecord(starts=2, run="{}", hosts="", launched="b" * 16)
    run_record.store("p", "r", record)
    assert run_record.is_stored("p", "r", record)
    for starts, launched in ((2, "b" * 16), (3, "a" * 16)):
        run_record.refuse_outdated("p", "r", starts, launched, None)
    with pytest.raises(Refusal):
        run_record.refuse_outdated("p", "r", 2, "a" * 16, None)


def store(run, folder="/home/a/project", file="hosts.toml", **more):
    text = json.dumps({"folder": folder, "hosts_file": file, "by_id_only": False, **more})
    os.makedirs(paths.run("p", run), exist_ok=True)
    run_record.store("p", run, RunRecord(starts=1, run=text, hosts=""))


def test_a_newer_run_of_the_same_folder_and_hosts_file_is_named(root):
    asked = {"known": ["4"], "folder": "/home/a/project", "file": "hosts.toml"}
    store("2")
    store("4")
    store("5", folder="/home/b/project")
    store("6", file="others.toml")
    store("7", by_id_only=True)
    os.makedirs(paths.run("p", "8"))  # without a record
    run_record.refuse_outdated("p", "2", 1, "", asked)
    store("3")
    run_record.refuse_outdated("p", "2", 1, "", None)  # the user has named it
    with pytest.raises(Refusal, match="it has run 3, which is newer than run 2") as refused:
        run_record.refuse_outdated("p", "2", 1, "", asked)
    assert refused.value.newer == "3"


def test_only_the_record_of_the_launch_that_was_refused_is_forgotten(root):
    os.makedirs(paths.run("p", "r"))
    run_record.store("p", "r", RunRecord(starts=1, run="", hosts="", launched="a"))
    for launched, is_stored in (("b", True), ("a", False), ("a", False)):
        run_record.forget("p", "r", launched)
        assert os.path.exists(paths.record("p", "r")) == is_stored
