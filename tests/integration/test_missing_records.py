"""A command without RUN means the newest run, also if the controller has lost its record."""

from __future__ import annotations

import shutil
import socket

import pytest
from support.ports import ADDRESS

RESTORED = "had no record on the controller: restored it from here"


@pytest.fixture
def two_runs(local):
    """Two runs that are live: an older one, and the newest."""
    project = local.started("--hold", hosts=one_worker(local))
    older = project.runs[-1]
    project.ok("start")
    return project, older, project.runs[-1]


def one_worker(local):
    hosts = local.hosts()
    hosts["here"].update(ps=0, workers=1, ports="auto")
    return hosts


def delete(folder):
    shutil.rmtree(folder)


def empty(folder):
    (folder / "run.json").write_bytes(b"")


def cut(folder):
    text = (folder / "run.json").read_text()
    (folder / "run.json").write_text(text[: len(text) // 2])


def empty_hosts(folder):
    (folder / "hosts.toml").write_bytes(b"")


@pytest.mark.parametrize("lose", [delete, empty, cut, empty_hosts])
def test_stop_means_the_newest_run_though_its_record_is_lost(two_runs, lose):
    project, older, newest = two_runs
    lose(project.run_folder)
    done = project.tf("stop")
    assert done.returncode == 0, done.stderr
    assert f"run {newest} {RESTORED}" in done.stderr
    assert f"all processes of run {newest} have exited" in done.stdout
    assert "READY" in project.ok("status", older)


def test_each_command_means_the_newest_run_though_its_record_is_lost(two_runs):
    project, _, newest = two_runs
    for words in (["status"], ["logs"], ["collect"], ["exec", "worker:0", "--", "true"]):
        delete(project.run_folder)
        done = project.tf(*words)
        assert f"run {newest} {RESTORED}" in done.stderr, (words, done)
    project.ok("stop")
    delete(project.run_folder)
    done = project.tf("attach")
    assert (done.returncode, f"run {newest} {RESTORED}" in done.stderr) == (143, True)


def test_no_command_takes_an_older_run_for_the_newest_that_cannot_be_restored(two_runs):
    project, older, newest = two_runs
    delete(project.run_folder)
    project.hosts = {"there": project.hosts["here"]}
    project.write()
    done = project.tf("stop")
    assert done.returncode != 0
    assert f"it has run {newest}, which is newer than run {older}, and has no record" in done.stderr
    assert "the run uses here, which hosts.toml does not have" in done.stderr
    assert f"name the run that you mean: --run {newest} or --run {older}" in done.stderr
    assert "READY" in project.ok("status", "--run", older)


def test_a_start_that_one_host_refuses_leaves_no_record_of_a_newer_run(by_ssh):
    project = by_ssh.started("--hold")
    project.ok("stop")
    with socket.create_server((ADDRESS, project.hosts["two"]["ports"][0])):
        assert "is taken by" in project.tf("start").stderr
    done = project.tf("status")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"run {project.runs[-1]}" in done.stdout


def test_a_cut_hosts_file_of_a_record_is_named_with_what_restores_it(two_runs):
    project, _, newest = two_runs
    file = project.run_folder / "hosts.toml"
    file.write_text(file.read_text()[:200])
    done = project.tf("stop")
    assert (done.returncode, f"rm {file} has it restored" in done.stderr) == (2, True), done.stderr
    file.unlink()
    assert f"run {newest} {RESTORED}" in project.tf("stop").stderr


def test_a_deleted_record_of_an_older_run_changes_nothing(two_runs):
    project, older, newest = two_runs
    delete(project.folder / "runs" / older)
    done = project.tf("status")
    assert (newest in done.stdout, done.stderr) == (True, "")
