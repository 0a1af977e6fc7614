"""What `run --resilient` does if its run was resumed, by itself or elsewhere."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import typer
from support.builders import make_run

from tfdeploy import run as runs
from tfdeploy.cli import training
from tfdeploy.cli.options import When
from tfdeploy.commands.running import run as command
from tfdeploy.commands.running.follow import Watcher
from tfdeploy.errors import (
    FleetError,
    LeaseConflict,
    OutdatedRecord,
    RunError,
    TaskError,
    Unreachable,
)
from tfdeploy.hosts.byte_progress import Transfers
from tfdeploy.output.console import Console

HOSTS = "".join(f"[hosts.{name}]\nworkers = 1\n" for name in "abcd")
FLEET = SimpleNamespace(transfers=Transfers())


def test_a_run_that_was_resumed_elsewhere_is_not_started_a_second_time(tmp_path, monkeypatch):
    run, taken = make_run(tmp_path, hosts=HOSTS), []

    def meet_a_newer_record(*_):
        raise OutdatedRecord("a", "run r was resumed", "", run.id, 2, run.inventory.file)

    monkeypatch.setattr(command, "follow_resiliently", meet_a_newer_record)
    monkeypatch.setattr(training, "take_newer_record", taken.append)
    with pytest.raises(RunError, match="run r was resumed") as failed:
        training._follow(FLEET, run, Console(), resilient=True)
    assert failed.value.hint == f"to follow it: tfdeploy attach {run.flags}"
    assert len(taken) == 1


def test_a_second_attempt_continues_from_the_record_of_the_first(tmp_path, monkeypatch):
    """Hosts that the first one has started have its record already."""
    run = make_run(tmp_path, hosts=HOSTS)
    newer = make_run(tmp_path, hosts=HOSTS.replace("[hosts.a]", "[hosts.e]"))
    attempts = []

    def resume(attempted, changes, *_, **__):
        attempts.append((attempted, changes.without))
        if len(attempts) == 1:
            raise Unreachable("b", "no route to host")
        return "resumed"

    monkeypatch.setattr(command, "resume", resume)
    monkeypatch.setattr(runs, "load", lambda file, run_id: newer)
    assert command._resume_without(FLEET, run, ("a",), Watcher()) == "resumed"
    assert attempts == [(run, ("a",)), (newer, ("b",))]


TAKEN = LeaseConflict("b", "GPU 0 is taken", "", "r-7")
LEFT = TaskError("worker:0", "a", "it may still be running: its host, which is left out, …")


@pytest.mark.parametrize("conflict", [TAKEN, FleetError([TAKEN, LEFT])], ids=["asked", "launched"])
def test_a_run_whose_gpus_others_have_waits_for_its_turn(tmp_path, monkeypatch, conflict):
    run, waited = make_run(tmp_path, hosts=HOSTS), []

    def resume(*_, queue, **__):
        waited.append(queue and queue.wait_s)
        if len(waited) < 3:
            raise conflict
        return "resumed"

    monkeypatch.setattr(command, "resume", resume)
    monkeypatch.setattr(runs, "load", lambda file, run_id: run)
    with pytest.raises(type(conflict)):  # the queue has refused it, too
        command._resume_without(FLEET, run, ("a",), Watcher())
    assert command._resume_without(FLEET, run, ("a",), Watcher()) == "resumed"
    assert waited == [None, math.inf, None]


def test_a_run_that_is_left_to_the_queue_is_not_followed():
    with pytest.raises(typer.BadParameter, match="expected --wait forever --resilient"):
        training.run(when=When(queue=True), resilient=True)
