"""`runs` and `prune` through the real command line show what the disks have."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import termios
from typing import TYPE_CHECKING, Any

import pytest
from support.projects import Project, environment
from support.waiting import until

from tfdeploy.commands.prune import Removal, prune
from tfdeploy.commands.runs import runs
from tfdeploy.config import inventory
from tfdeploy.hosts.fleet import Fleet

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from pathlib import Path

# What happens on a host does not depend on the transport: tested on the faster one only.
LOCAL_ONLY = pytest.mark.parametrize("lasting", ["local"], indirect=True)


OLDER = "20200101-000000-abcd"


@pytest.fixture(scope="module")
def runs_project(lasting) -> Project:
    """A run that has ended, and an active one of another release, which no test deletes."""
    project = lasting.project("--gate")
    (project.folder / "data").write_text("of the first release")
    project.ok("push")
    project.ok("start")
    for task in ("worker:1", "worker:0"):  # after the chief's end the other has only seconds
        (project.work(task) / "go").touch()
        until(lambda: project.status()[task]["state"] == "SUCCEEDED", f"the end of {task}")  # noqa: B023
    ends = ["STOPPED", "SUCCEEDED", "SUCCEEDED"]
    until(lambda: [task["state"] for task in project.status().values()] == ends, "the end")
    until(lambda: project.processes() == {}, "the last state that a supervisor writes")
    project.ok("collect")
    for host in project.hosts:
        shutil.copytree(project.on(host), backup_folder(project, host), symlinks=True)
    project.flags = ["--hold"]
    project.write()
    (project.folder / "data").write_text("of the second release")
    project.ok("push")
    project.ok("start")
    state_file = project.work("worker:0") / "checkpoints/checkpoint"
    until(lambda: state_file.is_file() and "ckpt-3" in state_file.read_text(), "checkpoint 3")
    return project


@pytest.fixture
def project(runs_project) -> Project:
    """The hosts have the ended run twice, the second time under an older id, with its release:
    what an earlier test deleted is restored."""
    (ended, _) = runs_project.runs
    for host in runs_project.hosts:
        (release,) = (backup_folder(runs_project, host) / "releases").iterdir()
        restore(release, runs_project.on(host) / "releases" / release.name)
        manifest = backup_folder(runs_project, host) / "manifests" / f"{release.name}.json"
        shutil.copy2(manifest, runs_project.on(host) / "manifests")
        for name in (ended, OLDER):
            restore(
                backup_folder(runs_project, host) / "runs" / ended,
                runs_project.on(host) / "runs" / name,
            )
    return runs_project


def backup_folder(project: Project, host: str) -> Path:
    return project.folder.parent / "backup" / host


def restore(source: Path, target: Path) -> None:
    if not target.exists():
        shutil.copytree(source, target, symlinks=True)


def on_another_controller(project: Project, folder: Path, **more: dict[str, Any]) -> Project:
    """Return the same project in another folder, with `more` hosts."""
    return Project(folder, {**project.hosts, **more}, project.top, name=project.name)


def listed(project: Project, host: str) -> list[str]:
    """Return the ids of the runs on a host."""
    return sorted(path.name for path in (project.on(host) / "runs").glob("*"))


def document(project: Project, *words: str) -> dict[str, Any]:
    return json.loads(project.ok(*words, "--json"))


def files(folder: Path) -> dict[Path, int]:
    return {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}


def test_runs_are_listed_with_their_results_and_disk_space_on_every_host(project):
    listing = document(project, "runs")
    ended, live = project.runs
    assert [(run["id"], run["result"]) for run in listing["runs"]] == [
        (live, "running"), (ended, "succeeded"), (OLDER, "succeeded"),
    ]  # fmt: skip
    assert [(run["recorded"], run["collected"]) for run in listing["runs"]] == [
        (True, False), (True, True), (False, False),
    ]  # fmt: skip
    assert all(run["hosts"] == list(project.hosts) for run in listing["runs"])
    assert [run["tasks"]["worker:0"] for run in listing["runs"]] == ["READY", *["SUCCEEDED"] * 2]
    assert list(listing["hosts"]) == list(project.hosts)
    for room in listing["hosts"].values():
        assert len(room["releases"]) == 2
        assert 0 < room["used_bytes"] < room["total_bytes"]


def test_the_text_has_one_line_for_each_run_and_each_host(project):
    text = project.ok("runs")
    cells = rf"[\w ]+ +3 +{', '.join(project.hosts)} +[\d.]+ kB"
    ended, live = project.runs
    assert re.search(rf"(?m)^{live} +running +{cells} +0 of 2 *$", text)
    assert re.search(rf"(?m)^{ended} +succeeded +{cells} +4 of 4 *$", text)
    assert re.search(rf"(?m)^{OLDER} +succeeded +{cells} +0 of 4 *$", text)
    for host in project.hosts:
        assert re.search(rf"(?m)^{host} +[\d.]+ kB +2, [\d.]+ kB +[\d.]+ GB of [\d.]+ GB *$", text)


def test_a_dry_run_shows_what_prune_would_delete_and_deletes_nothing(project):
    ended, live = project.runs
    before = {host: files(project.on(host) / "runs" / OLDER) for host in project.hosts}
    output = project.ok("prune", "--keep", "1", "--dry-run")
    assert "dry run: nothing was deleted" in output
    assert (OLDER in output, ended in output, live in output) == (True, True, False)
    planned = document(project, "prune", "--keep", "1", "--dry-run")["hosts"]
    assert {h: files(project.on(h) / "runs" / OLDER) for h in project.hosts} == before
    done = document(project, "prune", "--keep", "1", "--yes")["hosts"]
    for host in project.hosts:
        assert planned[host]["runs"] == done[host]["runs"] == [OLDER, ended]
        assert planned[host]["freed_bytes"] is None
        assert planned[host]["bytes"] > 0 < done[host]["freed_bytes"]
        assert listed(project, host) == [live]


def test_prune_keeps_live_runs_and_results_on_the_controller(project):
    before = files(project.folder)
    assert "results on the controller were not touched" in project.ok(
        "prune", "--keep", "0", "--yes"
    )
    assert files(project.folder) == before
    assert all(listed(project, host) == project.runs[-1:] for host in project.hosts)
    assert all(len(project.releases(host)) == 1 for host in project.hosts)
    assert [task["state"] for task in project.status().values()] == ["READY"] * 3
    assert (project.work("worker:0") / "data").read_text() == "of the second release"
    assert project.ok("prune", "--keep", "0") == "nothing to delete\n"


def test_prune_refuses_to_delete_results_that_only_hosts_have(project):
    (ended, live), last = project.runs, list(project.hosts)[-1]
    done = project.tf("prune", "--keep", "1")
    assert done.returncode == 2
    assert done.stderr == (
        "error: prune would delete 4 results that are not on the controller:\n"
        f"  run {OLDER}: model.ckpt-3 of worker:0 on {last} (61 B)\n"
        f"  run {OLDER}: checkpoints/events.out.tfevents.1.host of worker:0 on {last} (6 B)\n"
        f"  run {OLDER}: go of worker:0 on {last} (0 B)\n"
        f"  run {OLDER}: go of worker:1 on {last} (0 B)\n"
        f"  tfdeploy collect --run {OLDER} fetches what hosts.toml selects, "
        "tfdeploy fetch any other file; the same prune with --yes deletes them\n"
    )
    assert all({OLDER, ended, live} <= {*listed(project, host)} for host in project.hosts)
    (project.on(last) / "runs" / ended / "worker-0/work/model.keras").write_text("newer")
    assert f"run {ended}: model.keras of worker:0" in project.tf("prune", "--keep", "1").stderr
    assert document(project, "runs")["runs"][1]["results_collected"] == 4


@LOCAL_ONLY
def test_a_run_that_is_live_when_prune_reaches_it_stays_and_is_reported(project):
    planned = inventory.load(project.folder / "hosts.toml")
    with Fleet(planned) as fleet:
        disk = runs(fleet, planned).disks["here"]
        done = prune(fleet, project.name, {"here": Removal(disk.runs, disk.releases, 0)})
    live = project.runs[-1]
    messages = [str(error) for error in done.errors]
    assert re.fullmatch(rf"here: {live} was not deleted: its \w+:\d is live", messages[0])
    assert re.fullmatch(rf"here: \w+ was not deleted: run {live} uses it", messages[1])
    assert listed(project, "here") == [live]
    assert len(project.releases("here")) == 1


@pytest.mark.parametrize("lasting", ["ssh"], indirect=True)
def test_an_unreachable_host_is_reported_and_all_runs_stay(project, tmp_path):
    gone = {**project.hosts["two"], "hostname": "127.0.0.1", "port": 1}
    other = on_another_controller(project, tmp_path / "p", gone=gone)
    listing = other.tf("runs")
    assert listing.returncode == 1
    assert listing.stdout.count("\n20") == listing.stdout.count("one, two") == 3
    assert listing.stderr.startswith("error: gone: ")
    assert "all runs stay: 1 host did not answer" in other.tf("prune", "--keep=0", "--yes").stdout
    done = other.tf("prune", "--keep=0", "--yes", "--json")
    assert done.returncode == 1
    assert [error["host"] for error in json.loads(done.stdout)["errors"]] == ["gone"]
    assert listed(project, "one") == listed(project, "two") == [OLDER, *project.runs]


def run_at_terminal(project: Project, answer: str, *words: str) -> tuple[int, str]:
    """Run `tfdeploy WORDS` at a terminal of its own, and type the answer to its question. Return
    its exit code and what the terminal shows.

    Ctrl-C in the instant before Python waits for input has no effect until the next key: the answer
    is typed again, as a person would.
    """
    controlling, terminal = pty.openpty()
    env = {**environment(project.folder), "TERM": "xterm"}
    with subprocess.Popen(
        [sys.executable, "-m", "tfdeploy", *words],
        cwd=project.folder,
        env=env,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=_take_terminal,
    ) as process:
        os.close(terminal)
        screen, is_typed = b"", False
        while True:
            asked = b"delete them? [y/N]: " in screen
            if asked and not (is_typed and select.select([controlling], [], [], 5.0)[0]):
                os.write(controlling, answer.encode())
                is_typed = True
                continue
            chunk = _read(controlling)
            if not chunk:
                break
            screen += chunk
        os.close(controlling)
    return process.returncode, screen.decode()


def _take_terminal() -> None:
    """Make standard input the controlling terminal: Ctrl-C typed there becomes SIGINT, which a
    shell's background jobs, and so these tests, may ignore."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other end is closed
        return b""


@LOCAL_ONLY
@pytest.mark.parametrize("answer", ["n\n", "\n", "\x04", "\x03"], ids=["n", "Enter", "^D", "^C"])
def test_prune_at_a_terminal_deletes_nothing_unless_the_answer_is_yes(project, answer):
    before = {host: listed(project, host) for host in project.hosts}
    code, screen = run_at_terminal(project, answer, "prune", "--keep", "1")
    assert f"run {OLDER}: model.ckpt-3 of worker:0" in screen
    assert code in (1, 130)
    assert screen.rstrip().endswith("nothing was deleted")
    assert {host: listed(project, host) for host in project.hosts} == before


@LOCAL_ONLY
def test_prune_at_a_terminal_deletes_after_yes(project):
    code, screen = run_at_terminal(project, "y\n", "prune", "--keep", "1")
    assert (code, "results on the controller were not touched" in screen) == (0, True)
    assert all(listed(project, host) == project.runs[-1:] for host in project.hosts)


@LOCAL_ONLY
def test_runs_that_another_controller_started_are_listed_too(project, tmp_path):
    listing = document(on_another_controller(project, tmp_path / "p"), "runs")["runs"]
    assert [run["id"] for run in listing] == [*reversed(project.runs), OLDER]
    assert not any(run["recorded"] or run["collected"] for run in listing)


@LOCAL_ONLY
def test_before_the_first_push_there_is_nothing_to_list_or_delete(world):
    project = world.project()
    assert project.ok("runs").startswith(f"no run of {project.name} is on its hosts\n")
    assert project.ok("prune") == "nothing to delete\n"


@pytest.mark.parametrize("command", ["runs", "prune"])
def test_a_missing_hosts_file_exits_with_2(tmp_path, command):
    project = Project(tmp_path, {"here": {"transport": "local", "workers": 1}})
    done = project.tf(command, "--hosts", "other.toml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "other.toml: there is no such file" in done.stderr


# What is nowhere else


@pytest.fixture(scope="module")
def uncollected_project(lasting) -> Project:
    """A run of which a collect has fetched what it may: a large file is left out, and a FIFO."""
    project = lasting.project("--hold", training={"outputs_limit_mb": 1})
    project.ok("push")
    project.ok("start")
    project.ok("stop")
    work = project.work("worker:0")
    (work / "best.keras.bin").write_bytes(bytes(1_500_000))
    os.mkfifo(work / "pipe")
    (work / "away").symlink_to("/etc/hostname")
    (work / "best").symlink_to("best.keras.bin")
    for number in range(1100):
        (work / f"part-{number}.csv").write_text("x")
    project.ok("collect")
    return project


@LOCAL_ONLY
def test_prune_names_what_no_collect_has_fetched_and_deletes_nothing(uncollected_project):
    project, (run,) = uncollected_project, uncollected_project.runs
    last = list(project.hosts)[-1]
    lost = (
        f"prune would delete 3 results that are not on the controller:\n"
        f"  run {run}: best.keras.bin of worker:0 on {last} (1.5 MB)\n"
        f"  run {run}: away of worker:0 on {last} (a link to /etc/hostname)\n"
        f"  run {run}: pipe of worker:0 on {last} (a FIFO)\n"
    )
    done = project.tf("prune", "--keep", "0")
    assert (done.returncode, done.stderr.startswith(f"error: {lost}")) == (2, True), done.stderr
    assert lost in project.tf("prune", "--keep", "0", "--dry-run").stderr
    assert (project.work("worker:0") / "best.keras.bin").is_file()
    (listed,) = document(project, "runs")["runs"]
    assert listed["results"] - listed["results_collected"] == 3
    assert listed["results"] > 1100


@LOCAL_ONLY
def test_a_file_that_was_written_again_with_equal_content_is_collected(uncollected_project):
    project, work = uncollected_project, uncollected_project.work("worker:0")
    names = ["checkpoints/model.ckpt-3.index", "part-7.csv"]
    for name in names:
        os.utime(work / name)
    before = document(project, "runs")["runs"][0]["results_collected"]
    project.ok("collect")
    after = document(project, "runs")["runs"][0]["results_collected"]
    assert after == before + len(names)


def test_every_command_says_once_that_a_run_was_deleted(local):
    project = local.project()  # not `pushed`: prune deletes the release
    project.ok("run")
    project.ok("prune", "--keep", "0", "--yes")
    deleted = f"run {project.runs[-1]} was deleted from its hosts on "
    for words in (
        ["status"],
        ["watch"],
        ["collect"],
        ["attach"],
        ["logs"],
        ["fetch", "worker:0", "x"],
        ["exec", "worker:0", "--", "ls"],
        ["stop"],
        ["scale", "workers=1"],
    ):
        done = project.tf(*words)
        before = "waiting for the first report\n" if words == ["watch"] else ""
        assert (done.returncode, done.stdout) in ((1, before), (1, "")), words
        assert done.stderr.count(deleted) == 1, (words, done.stderr)
        assert "by tfdeploy prune of " in done.stderr
        assert done.stderr.endswith("a new run: tfdeploy start\n")
        assert "Errno" not in done.stderr
        assert "continues" not in done.stderr
    report = project.tf("report")
    assert (report.returncode, report.stderr.count(deleted)) == (0, 1), report.stderr


def test_a_run_that_was_deleted_is_resumed_only_from_what_was_collected(local):
    project = local.project()  # not `pushed`: prune deletes the release
    project.ok("run")
    project.ok("prune", "--keep", "0", "--yes")
    deleted = f"run {project.runs[-1]} was deleted from its hosts on "
    done = project.tf("resume")
    assert "resumes from model.ckpt-3 on the controller" in done.stdout
    assert done.stderr.count(deleted) == 1
    assert "it continues from what was collected" in done.stderr
    project.ok("stop")
    project.ok("prune", "--keep", "0", "--yes")
    for results in ("checkpoints", "outputs"):
        shutil.rmtree(project.run_folder / results)
    done = project.tf("resume")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: {deleted}")
    assert done.stderr.endswith("nothing to continue from; a new run: tfdeploy start\n")
    assert project.processes() == {}
