"""Commands and faults in any order; and each failure that this has found, as the shortest sequence
that failed."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from support.projects import toml

from integration import any_order
from integration.any_order import STEPS, AnyOrder
from tfdeploy import run as runs
from tfdeploy.agent.queue import places
from tfdeploy.commands import prune, resume
from tfdeploy.shared.protocol.record import replace

SOAK = "TFDEPLOY_FUZZ_SEQUENCES"  # the number of sequences of a soak, which are others each time
SEQUENCES, SEQUENCES_A_TEST = int(os.environ.get(SOAK, "50")), 1000
CHANGES = 24  # more than any command here makes on the controller

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("first", range(0, SEQUENCES, SEQUENCES_A_TEST))
def test_nothing_is_lost_and_every_last_sentence_is_true_in_any_order(first):
    run_state_machine_as_test(
        AnyOrder,
        settings=settings(
            max_examples=min(SEQUENCES_A_TEST, SEQUENCES - first), stateful_step_count=STEPS,
            deadline=None, database=None, derandomize=SOAK not in os.environ,
        ),
    )  # fmt: skip


@pytest.fixture
def machine():
    """Two controllers and three hosts; at the end both stop all runs and show what the hosts
    have."""
    machine = AnyOrder()
    yield machine
    machine.teardown()


def work(machine, host, task):
    (run,) = machine.runs
    return machine.hosts / host / "p" / "runs" / run / task / "work"


def hosts_of_live_tasks(machine):
    return {folder.relative_to(machine.hosts).parts[0] for folder in machine.live}


def test_a_resume_without_a_host_that_answers_stops_its_tasks(machine):
    machine.start("A", None)
    machine.resume("B", None, without="b")
    assert hosts_of_live_tasks(machine) == {"a", "c"}


def test_tasks_on_a_host_that_was_left_out_are_named_and_a_later_stop_ends_them(machine):
    machine.start("A", None)
    machine.break_host("b", "cut")
    (run,) = machine.runs
    done = machine.tf("A", "resume", "--without", "b", "--run", run)
    assert done.code == 0
    assert "chief:0 on b: it may still be running" in done.err
    shown = machine.tf("B", "status", "--run", run).out
    assert "left out: b; tasks of an earlier start may still run there" in shown
    done = machine.tf("B", "stop", "--run", run)
    assert f"all processes of run {run} on a, c have exited" in done.out
    assert "b gave no answer" in done.out
    machine.heal()
    done = machine.tf("A", "stop", "--run", run)
    assert "STOPPED   chief:0 on b  of another start" in done.out
    assert machine.live == []


def test_a_resume_without_the_chiefs_host_fetches_what_a_worker_wrote_that_goes_too(monkeypatch):
    """Without a spare host, the workers of the other host get the first numbers."""
    tables = {"a": {"workers": 1}, "b": {"ps": 1, "workers": 2}, "c": {}}
    monkeypatch.setattr(any_order, "TABLES", tables)
    machine = AnyOrder()
    machine.start("A", None)
    (work(machine, "b", "worker-2") / "r.csv").write_text("2\n")
    machine.break_host("a", "cut")
    (run,) = machine.runs
    done = machine.tf("A", "resume", "--without", "a", "--run", run)
    assert done.code == 0, done.text
    live = machine.simulation.live_tasks(run, left_out=["a"])
    assert live == {"ps:0": "b", "worker:0": "b", "worker:1": "b"}
    outputs = machine.controllers["A"] / "runs" / run / "outputs"
    assert [*outputs.rglob("*.csv")] == [outputs / "worker-2/r.csv"]
    machine.teardown()


def test_a_file_that_becomes_a_folder_is_collected_and_survives_a_resume(machine):
    machine.start("A", None)
    model = work(machine, "b", "chief-0") / "model"
    model.write_text("1\n")
    machine.collect("A", None)
    model.unlink()
    model.mkdir()
    (model / "weights.bin").write_text("2\n")
    machine.stop("A", None)
    machine.resume("A", None, without="")
    assert (model / "weights.bin").read_text() == "2\n"
    machine.collect("A", None)
    outputs = machine.controllers["A"] / "runs" / machine.runs[0] / "outputs"
    assert (outputs / "model/weights.bin").read_text() == "2\n"


def test_a_name_of_the_chief_that_another_tasks_outputs_have_is_named_and_not_fetched(machine):
    machine.start("A", None)
    for host, task, name in (("b", "chief-0", "worker-0/m.csv"), ("a", "worker-0", "m.csv")):
        file = work(machine, host, task) / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(task)
    (run,) = machine.runs
    done = machine.tf("A", "collect", "--run", run)
    stored = machine.controllers["A"] / "runs" / run / "outputs/worker-0/m.csv"
    assert (done.code, stored.read_text()) == (0, "worker-0")
    assert "worker-0/m.csv" in done.text
    assert "the outputs of another task have this name on the controller" in done.text


def test_a_stop_names_a_host_that_was_left_out_and_is_not_in_hosts_toml_any_more(machine):
    machine.start("A", None)
    machine.break_host("b", "cut")
    (run,) = machine.runs
    assert machine.tf("A", "resume", "--without", "b", "--run", run).code == 0
    hosts_toml = machine.controllers["A"] / "hosts.toml"
    inventory = machine._inventory()
    del inventory["hosts"]["b"]
    hosts_toml.write_text(toml(inventory))
    done = machine.tf("A", "stop", "--run", run)
    assert f"all processes of run {run} on a, c have exited" in done.out
    assert "b gave no answer" in done.out
    hosts_toml.write_text("[[")
    done = machine.tf("A", "stop", "--run", run)
    assert (done.code, "STOPPED   chief:0" in done.out) == (1, True), "nothing hides what it did"
    hosts_toml.write_text(toml(machine._inventory()))


def test_a_refused_start_leaves_no_record_also_if_planning_took_seconds(machine, monkeypatch):
    monkeypatch.setattr(runs, "age_s", lambda run_id: 2.5)
    machine.break_host("b", "full")
    assert machine.tf("A", "start").code == 1
    assert [*(machine.controllers["A"] / "runs").glob("*/run.json")] == []


def test_a_resumed_run_is_not_new_if_the_clock_was_set_back(machine, monkeypatch):
    machine.start("A", None)
    monkeypatch.setattr(runs, "age_s", lambda run_id: 0.0)
    machine.stop("A", None)
    machine.resume("A", None, without="")
    launch = work(machine, "a", "worker-0").parent / "launch.json"
    assert json.loads(launch.read_text())["limits"]["age_s"] > 0


def test_ctrl_c_before_a_scale_has_stopped_anything_says_that_the_run_may_be_as_it_was(
    machine, monkeypatch
):
    def interrupt(*_):
        raise KeyboardInterrupt

    machine.start("A", None)
    monkeypatch.setattr(resume, "_send_releases", interrupt)
    done = machine.tf("A", "scale", "workers=3")
    assert f"run {machine.runs[0]} is as it was, or stopped, perhaps in part" in done.text
    assert (done.code, len(machine.live)) == (130, 4)


def test_a_run_that_another_controller_continues_on_other_hosts_is_stopped(machine):
    """The hosts of the older record have no newer one."""
    machine.start("A", None)
    machine.status("B")
    machine.scale("B", None, workers=1)
    machine.status("A")
    machine.resume("B", None, without="b")
    machine.stop("A", None)
    assert machine.live == []


@pytest.mark.parametrize("controller", ["A", "B"])
def test_a_run_that_two_controllers_have_resumed_in_the_same_second_is_stopped(
    machine, monkeypatch, controller
):
    """Some hosts have one record, some the other, and both have as many starts."""
    machine.start("A", None)
    monkeypatch.setattr(runs, "age_s", lambda run_id: 60.0)
    machine.resume("B", None, without="a")
    machine.resume("A", None, without="b")
    (run,) = machine.runs
    done = machine.tf(controller, "stop", "--run", run)
    assert (done.code, machine.live) == (1, [])
    assert f"a newer record of run {run}, but " in done.err


@pytest.mark.parametrize("kill", range(CHANGES))
def test_a_resume_that_is_killed_at_any_change_leaves_one_record(machine, kill):
    """Its record has as many starts as that of the other controller's next resume."""
    machine.start("A", None)
    machine.status("B")
    machine.stop("A", None)
    machine.resume("A", kill, without="")
    machine.stop("B", None)
    machine.resume("B", None, without="")
    machine.scale("B", None, workers=3)
    machine.status("A")
    machine.stop("A", None)
    assert machine.live == []


@pytest.mark.parametrize("words", [("scale", "workers=1"), ("resume", "--without", "b")])
def test_a_run_is_not_stopped_if_another_waits_for_what_it_would_need(machine, monkeypatch, words):
    machine.start("A", None)
    (run,) = machine.runs
    before = machine.live
    others = [
        places.Place(f"port/{port}", 1, 1, "bobs", "worker:0") for port in range(10000, 10005)
    ]
    monkeypatch.setattr(places, "held_places", lambda: others)
    done = machine.tf("A", *words, "--run", run)
    assert done.code == 1
    assert "a run in the queue waits for port 1000" in done.err
    assert "nothing was stopped" in done.err
    assert "--queue" in done.err
    assert machine.live == before
    own = [replace(each, run=run) for each in others]
    monkeypatch.setattr(places, "held_places", lambda: own)
    assert machine.tf("A", *words, "--run", run).code == 0


def test_a_resume_that_fails_names_what_may_still_run_on_a_host_that_it_left_out(machine):
    machine.start("A", None)
    machine.break_host("a", "cut")
    machine.break_host("b", "full")
    done = machine.tf("A", "resume", "--run", machine.runs[0], "--without", "a")
    live = machine.simulation.live_tasks(machine.runs[0])
    assert (done.code, live) == (1, {"ps:0": "a", "worker:0": "a"})
    assert "error: b: can't write" in done.err
    assert "ps:0, worker:0 on a: it may still be running" in done.err


@pytest.mark.parametrize("kill", range(CHANGES))
def test_a_resume_without_a_host_that_is_killed_at_any_change_forgets_no_task(machine, kill):
    machine.start("B", None)
    machine.break_host("b", "cut")
    machine.resume("A", kill, without="b")
    machine.heal()
    machine.stop("A", None)
    assert machine.live == []


@pytest.mark.parametrize("name", ["peak_temp", "old.orbax-checkpoint-tmp", "__pycache__"])
def test_a_file_with_a_name_like_a_savers_folder_is_collected(machine, name):
    machine.start("A", None)
    folder = work(machine, "b", "chief-0")
    machine._write(folder / name, b"a result")
    machine.end_collect_and_prune("A", None)
    assert machine._is_on_controller(folder / name)


def test_a_resume_keeps_what_the_chief_wrote_last_whatever_its_time(machine):
    machine.start("A", None)
    file = machine._write(work(machine, "b", "chief-0") / "best.bin", b"first")
    machine.collect("A", None)
    machine._write(file, b"second")
    os.utime(file, ns=(0, 0))  # a copy of an older file, with its time
    machine.stop("A", None)
    machine.resume("A", None, without="")
    assert file.read_bytes() == b"second"


def test_a_later_checkpoint_with_a_smaller_step_is_not_taken_for_an_older_one(machine):
    machine.start("A", None)
    folder = work(machine, "b", "chief-0") / "checkpoints"
    machine.write_checkpoint(folder, 4)
    machine.collect("A", None)
    machine.write_checkpoint(folder, 2)  # the next phase of a training counts from the beginning
    machine.stop("A", None)
    machine.prune("A", None, yes=False)
    machine.every_file_is_somewhere()
    machine.prune("A", None, yes=True)  # says what is lost


def test_what_a_run_wrote_after_prune_has_listed_it_stays(machine, monkeypatch):
    """Another controller resumes it while a person reads the list, and it has ended again."""
    machine.start("A", None)
    machine.status("B")
    machine.stop("A", None)
    machine.collect("A", None)
    delete = prune.prune

    def resume_before(*words):
        machine.resume("B", None, without="")
        machine._write(work(machine, "b", "chief-0") / "new.bin", b"of the resumed run")
        machine.stop("B", None)
        return delete(*words)

    monkeypatch.setattr(prune, "prune", resume_before)
    done = machine.tf("A", "prune", "--keep", "0")
    assert "was not deleted: it was started again since prune has listed its files" in done.text
    assert (work(machine, "b", "chief-0") / "new.bin").exists()


def test_a_resume_of_an_older_record_after_a_prune_is_the_newest(machine, monkeypatch):
    """No host remembers how often the other controller had started it."""
    monkeypatch.setattr(runs, "age_s", lambda run_id: 0.0)
    machine.start("A", None)
    machine.write_checkpoint(work(machine, "b", "chief-0") / "checkpoints", 1)
    machine.collect("A", None)
    machine.status("B")
    for workers in (3, 2, 3):
        machine.scale("B", None, workers=workers)
    machine.stop("B", None)
    machine.prune("B", None, yes=True)
    monkeypatch.setattr(runs, "age_s", lambda run_id: 60.0)
    machine.resume("A", None, without="")
    (run,) = machine.runs
    document = json.loads(machine.tf("B", "status", "--run", run, "--json").out)
    assert {each["task"] for each in document["tasks"]} == {*machine.simulation.live_tasks(run)}


def test_all_that_prune_deletes_is_named_to_who_agrees_in_advance(machine):
    machine.start("A", None)
    for number in range(30):
        machine._write(work(machine, "b", "chief-0") / f"part-{number:02}.csv", b"x")
    machine._write(work(machine, "b", "worker-1") / "alone.csv", b"x")
    machine.stop("A", None)
    (run,) = machine.runs
    text = machine.tf("A", "prune", "--keep", "0", "--yes").err
    assert f"run {run}: part-09.csv of chief:0 on b (1 B)" in text
    assert f"run {run}: 20 more results in ./ of chief:0 on b (20 B)" in text
    assert f"run {run}: alone.csv of worker:1 on b (1 B)" in text
    machine.written.clear()
