"""`import tfdeploy`: the commands as functions, on real hosts."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.waiting import until

import tfdeploy
from tfdeploy.hosts import byte_progress
from tfdeploy.hosts.byte_progress import Transfer

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
HEAVY = {"fabric", "paramiko", "pydantic", "rich", "typer", "matplotlib", "toml"}


@pytest.fixture
def project(world):
    return world.pushed("--steps=3")


@pytest.fixture
def inventory(project):
    return tfdeploy.Inventory.load(project.folder / "hosts.toml")


def names(lines):
    return sorted({line.task for line in lines})


def test_the_import_loads_no_library():
    code = "import sys, tfdeploy; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name.split(".")[0] for name in done.stdout.split()} & HEAVY == set()


def test_every_block_of_the_page_runs(world, monkeypatch, capsys):
    project = world.project()
    monkeypatch.chdir(project.folder)
    names = {}
    for block in BLOCKS:
        exec(compile(block, PAGE.name, "exec"), names)
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "ps:0 one" in printed.out or "ps:0 here" in printed.out
    assert "| worker:0 step 3" in printed.out
    assert f"succeeded 0 {project.folder / 'runs'}" in printed.out
    assert "worker:0 SUCCEEDED" in printed.out
    assert 'there is no run "20200101-000000-abcd"' in printed.out
    assert project.processes() == {}


def test_a_run_is_started_followed_and_collected_without_a_word(project, inventory, capfd):
    assert [str(p.task) for p in tfdeploy.plan(inventory).plan.placements] == [
        "ps:0", "worker:0", "worker:1"
    ]  # fmt: skip
    assert [{*lacked.values()} for lacked in tfdeploy.push(inventory).values()] == [{False}]
    reported = []
    run = tfdeploy.start(
        inventory, words=["--gate"], on_report=lambda host, report: reported.append(report.state)
    )
    assert reported.count("READY") == 3
    assert [task.report.state for task in run.status().tasks] == ["READY"] * 3
    assert names(run.logs("worker")) == ["worker:0", "worker:1"]
    assert run.fetch("worker:0", "checkpoints").folder.is_dir()
    for task in ("worker:0", "worker:1"):
        (project.work(task) / "go").touch()
    seen = []
    ended = run.wait(tfdeploy.Watcher(on_lines=lambda task, host, lines: seen.extend(lines)))
    assert (ended.result, ended.exit, ended.failure) == ("succeeded", 0, None)
    assert "worker:0 step 3" in seen
    assert [checkpoint.step for checkpoint in run.collect().checkpoints] == [3]
    assert (run.folder / "checkpoints" / "checkpoint").is_file()
    assert run.stop().states["worker:0"] == "SUCCEEDED"
    assert run.id in [each.id for each in tfdeploy.runs(inventory).runs]
    assert capfd.readouterr() == ("", "")


def test_a_stopped_run_is_resumed_by_the_same_object(project, inventory):
    run = tfdeploy.start(inventory, words=["--hold"])
    until(lambda: "worker:0 step 3" in [line.text for line in run.logs("worker:0")], "step 3")
    selected = run.logs("worker:0", grep="step [12]$", lines=1)
    assert [line.text for line in selected] == ["worker:0 step 2"]
    run.stop()
    resumed = run.resume()
    assert (resumed.run.id, resumed.source.step) == (run.id, 3)
    assert run.record.starts > 1
    assert [task.report.state for task in run.status().tasks] == ["READY"] * 3
    run.stop()
    assert run.attach().result == "stopped"


def test_a_run_has_a_name_and_other_numbers_of_tasks(project, inventory):
    run = tfdeploy.start(inventory, words=["--hold"], counts={"workers": 1}, name="small")
    assert tfdeploy.Run.from_id("small", hosts=project.folder / "hosts.toml") == run
    assert [str(p.task) for p in run.record.plan.placements] == ["ps:0", "worker:0"]
    assert run.record.words == ("--hold",)
    scaled = run.scale({"workers": 2})
    assert (scaled.before, scaled.after) == ("1 ps and 1 worker", "1 ps and 2 workers")
    assert len(run.status().tasks) == 3
    run.stop()
    again = tfdeploy.start(inventory, words=["--hold"], release="small")
    assert again.record.release == run.record.release
    again.stop()


@pytest.mark.parametrize("counts", [{"worker": 1}, {"workers": -1}, {"workers": True}])
def test_numbers_of_tasks_are_checked(inventory, counts):
    with pytest.raises(tfdeploy.InventoryError, match="counts: found"):
        tfdeploy.plan(inventory, counts=counts)


def test_from_id_finds_the_newest_run_and_restores_a_lost_record(project, inventory):
    run = tfdeploy.start(inventory)
    assert tfdeploy.Run.from_id(hosts=project.folder / "hosts.toml") == run
    (run.folder / "run.json").unlink()
    again = tfdeploy.Run.from_id(run.id, hosts=project.folder / "hosts.toml")
    assert again == run
    assert (run.folder / "run.json").is_file()
    again.stop()


# Refusals


PROGRAM = """
project = "p"
[training]
command = "python train.py"
[hosts.here]
transport = "local"
workers = 1
python = "/opt/somebody/python"
"""


def test_what_needs_trust_is_refused_with_the_command_to_type(monkeypatch, tmp_path):
    trusted = tmp_path / "config" / "tfdeploy" / "trusted"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    Path("hosts.toml").write_text(PROGRAM)
    with pytest.raises(tfdeploy.NotTrusted, match=r"if you trust it: tfdeploy trust\Z"):
        tfdeploy.Inventory.load()
    inventory = tfdeploy.Inventory.load(trust=True)
    assert tfdeploy.Inventory.load() == inventory
    for file in trusted.iterdir():
        file.unlink()
    functions = (tfdeploy.plan, tfdeploy.check, tfdeploy.push, tfdeploy.start)
    for function in (*functions, tfdeploy.runs, tfdeploy.prune):
        with pytest.raises(tfdeploy.NotTrusted):
            function(inventory)


def test_a_start_that_fails_raises_why_and_leaves_nothing(project, inventory):
    with pytest.raises(tfdeploy.TfdeployError, match="ImportError: no module named nothing"):
        tfdeploy.start(inventory, words=["--broken", "--who=worker:1"])
    assert project.processes() == {}


@pytest.mark.parametrize("name", ["A=B", "", "1A"])
def test_the_name_of_a_variable_is_checked(inventory, name):
    with pytest.raises(tfdeploy.InventoryError):
        tfdeploy.plan(inventory, env={name: "x"})


# Cancel


def after(seconds, function):
    timer = threading.Timer(seconds, function)
    timer.daemon = True
    timer.start()


@pytest.mark.parametrize("method", ["wait", "attach", "logs"])
def test_an_event_ends_following_and_the_run_continues(project, inventory, method):
    run, cancel = tfdeploy.start(inventory, words=["--hold"]), threading.Event()
    after(0.5, cancel.set)
    with pytest.raises(tfdeploy.Cancelled):
        if method == "logs":
            list(run.logs(follow=True, cancel=cancel))
        else:
            getattr(run, method)(cancel=cancel)
    assert [task.report.state for task in run.status().tasks] == ["READY"] * 3
    run.stop()
    assert run.attach().result == "stopped"  # it waits for a fetch that was left


def test_an_event_undoes_a_start_in_another_thread(project, inventory):
    cancel, raised = threading.Event(), []

    def start():
        try:
            tfdeploy.start(inventory, words=["--hold", "--deaf=worker:1"], cancel=cancel)
        except tfdeploy.TfdeployError as error:
            raised.append(type(error))

    thread = threading.Thread(target=start)
    thread.start()
    until(lambda: len(project.processes()) > 3, "the tasks")
    cancel.set()
    thread.join()
    assert raised == [tfdeploy.Cancelled]
    assert project.processes() == {}


def test_an_interrupt_ends_wait_and_the_run_continues(project, inventory):
    run = tfdeploy.start(inventory, words=["--hold"])
    after(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        run.wait()
    assert [task.report.state for task in run.status().tasks] == ["READY"] * 3
    run.stop()


def test_leaving_the_loop_over_logs_ends_it(project, inventory):
    run = tfdeploy.start(inventory, words=["--hold"])
    before = threading.active_count()
    for line in run.logs(follow=True):
        assert line.text
        break
    until(lambda: threading.active_count() <= before, "the threads that followed")
    run.stop()


def test_the_functions_work_beside_an_event_loop_and_in_its_threads(project, inventory):
    async def use():
        run = tfdeploy.start(inventory)
        finished, lines = await asyncio.gather(
            asyncio.to_thread(run.attach), asyncio.to_thread(lambda: list(run.logs(follow=True)))
        )
        return finished.result, names(lines)

    assert asyncio.run(use()) == ("succeeded", ["ps:0", "worker:0", "worker:1"])


class SlowHosts:
    """Hosts whose Python, and so their agents, waits before each start while the file exists."""

    def __init__(self, project, folder):
        self.file, self.started = folder / "slow", folder / "started"
        [python] = {host["python"] for host in project.hosts.values()}
        wrapper = folder / "python"
        wrapper.write_text(
            f"#!/bin/sh\nif [ -e {self.file} ]; then echo >> {self.started}; sleep 60; fi\n"
            f'exec {python} "$@"\n'
        )
        wrapper.chmod(0o755)
        project.top["keep_connections_s"] = 0
        project.hosts = {n: {**h, "python": str(wrapper)} for n, h in project.hosts.items()}
        project.write()

    def begin(self):
        self.file.touch()

    def wait(self):
        until(self.started.exists, "the slow agents")

    def end(self):
        self.file.unlink()


def cancelled(call, when):
    """Return what a call in another thread raises soon after `when` has returned and its event was
    set."""
    cancel, raised = threading.Event(), []

    def run():
        try:
            call(cancel)
        except tfdeploy.TfdeployError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    when()
    cancel.set()
    thread.join(30.0)
    assert not thread.is_alive()
    return [type(error) for error in raised]


@pytest.fixture
def slow(project, tmp_path):
    made = SlowHosts(project, tmp_path)
    yield made
    made.file.unlink(missing_ok=True)


def load(project):
    return tfdeploy.Inventory.load(project.folder / "hosts.toml")


def test_an_event_ends_a_push_to_hosts_that_do_not_answer(project, slow):
    slow.begin()
    inventory = load(project)
    push = lambda cancel: tfdeploy.push(inventory, cancel=cancel)  # noqa: E731
    assert cancelled(push, slow.wait) == [tfdeploy.Cancelled]
    slow.end()
    assert {False} == {*tfdeploy.push(inventory).popitem()[1].values()}  # it was there before


def test_an_event_in_the_middle_of_a_transfer_ends_it_and_the_next_push_completes(
    world, monkeypatch
):
    project = world.project()
    (project.folder / "large").write_bytes(os.urandom(24 << 20))
    inventory, arriving = load(project), threading.Event()

    def push(cancel):
        class SlowTransfer(Transfer):
            def __call__(self, file, there):
                arriving.set()
                cancel.wait(20.0)
                super().__call__(file, there)

        monkeypatch.setattr(byte_progress, "Transfer", SlowTransfer)
        tfdeploy.push(inventory, cancel=cancel)

    assert cancelled(push, arriving.wait) == [tfdeploy.Cancelled]
    assert [project.releases(host) for host in project.hosts] == [set()] * len(project.hosts)
    tfdeploy.push(inventory)
    assert all(len(project.releases(host)) == 1 for host in project.hosts)


def test_an_event_before_the_stop_of_a_resume_leaves_the_run_as_it_was(project, slow):
    run = tfdeploy.start(load(project), words=["--hold"])
    slow.begin()
    scale = lambda cancel: run.scale({"workers": 1}, cancel=cancel)  # noqa: E731
    assert cancelled(scale, slow.wait) == [tfdeploy.Cancelled]
    slow.end()
    assert [task.report.state for task in run.status().tasks] == ["READY"] * 3
    run.stop()


def test_an_event_after_the_stop_of_a_resume_leaves_the_run_stopped(project, inventory):
    run = tfdeploy.start(inventory, words=["--hold"])
    reported = threading.Event()

    def scale(cancel):
        def on_report(host, report):
            reported.set()
            cancel.wait(20.0)

        run.scale({"workers": 1}, on_report=on_report, cancel=cancel)

    assert cancelled(scale, reported.wait) == [tfdeploy.Cancelled]
    assert project.processes() == {}
    resumed = run.resume()
    assert [task.report.state for task in run.status().tasks] == ["READY"] * 2
    assert resumed.source is not None
    run.stop()
