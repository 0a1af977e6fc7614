"""Somebody else's repository with a runs/ of its own: what is below it leads nowhere else.

The clone's run is also on its host, which is this machine and sends whatever an attacker likes.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import command_line
from support.builders import run_json
from support.chief import save
from support.host_outputs import to_expressions
from support.host_runs import create_run

from tfdeploy import run as runs
from tfdeploy.agent import paths
from tfdeploy.hosts.agent_bundle import current_version
from tfdeploy.results import checkpoint_copies, handover
from tfdeploy.results.run_folder import outputs_folder
from tfdeploy.shared.records import OutputSelection

RUN = "20260101-000000-aaaa"
HOSTS = '[hosts.here]\ntransport = "local"\nworkers = 1\n'
RECORD = f'{HOSTS}address = "127.0.0.1"\nports = [2222, 2223]\n'
EVENTS = "events.out.tfevents.1.host"
EVIL = "evil\n"
READS = (f"report {RUN} --offline",)  # it writes a page
LINKS = (
    *("outputs", "outputs/sub", "logs", "events", "checkpoints"),
    *(".incoming", ".incoming-outputs-worker-0", ".incoming-outputs-worker-0/sub"),
)


class HostileClone:
    """A repository in the user's home, with the record of a run. `home` must stay as it is."""

    def __init__(self, home):
        self.home, self.folder = home, home / "clone"
        self.run_folder = self.folder / "runs" / RUN
        self.run_folder.mkdir(parents=True)
        (home / "docs").mkdir()
        for name in (".bashrc", "docs/thesis", "docs/worker-0.log"):
            (home / name).write_text("my own\n")
        training = 'project = "p"\n[training]\ncommand = "python train.py"\n'
        (self.folder / "hosts.toml").write_text(training + HOSTS)
        (self.run_folder / "hosts.toml").write_text(training + RECORD)
        (self.run_folder / "run.json").write_text(json.dumps(run_json(agent=current_version())))
        self.before = self.own_files()

    def own_files(self):
        """Return all that the user has outside of the clone and of tfdeploy's own folders."""
        files = [file for file in self.home.rglob("*") if file.is_file()]
        of_tfdeploy = (".tfdeploy", ".cache", ".config", ".local/state/tfdeploy")
        inside = (self.folder, *(self.home / name for name in of_tfdeploy))
        own = [file for file in files if not any(map(file.is_relative_to, inside))]
        return {str(file.relative_to(self.home)): file.read_text() for file in own}

    def tf(self, *words):
        env = {**os.environ, "HOME": str(self.home), "COLUMNS": "200"}
        return command_line.run(*words, cwd=self.folder, env=env)

    def link(self, name, target):
        """Have a link below runs/<run>, in place of what is there."""
        link = self.run_folder / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)


@pytest.fixture
def clone(home, monkeypatch):
    """The clone, and its run as the host has it."""
    (home / ".tfdeploy" / "agent").mkdir(parents=True)
    home.joinpath(".tfdeploy").chmod(0o700)
    monkeypatch.setattr(sys, "argv", [os.fspath(home / ".tfdeploy" / "agent" / "abc.pyz")])
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    found = Path(
        create_run(RUN, "worker:0", outputs=OutputSelection(to_expressions("outputs", ["*"])))
    )
    work = found / "worker-0" / "work"
    (work / "checkpoints").mkdir()
    save(work / "checkpoints", 1)
    logs = Path(paths.logs("p", RUN))
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "worker-0.log").write_text(EVIL)
    (work / EVENTS).write_text(EVIL)
    made = HostileClone(home)
    made.work, made.logs = work, logs
    return made


def write(work, *names):
    for name in names:
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(EVIL)


@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize("target", ["home", "docs"])
def test_collect_writes_and_deletes_nothing_through_a_link(clone, name, target):
    goal = clone.home / ("docs" if target == "docs" else "")
    clone.link(name, os.path.relpath(goal, (clone.run_folder / name).parent))
    write(clone.work, "thesis", ".bashrc", "sub/.bashrc", "worker-0.log")
    done = clone.tf("collect")
    assert clone.own_files() == clone.before, done.stderr


def test_a_collect_names_the_link_and_fetches_the_rest(clone):
    clone.link("outputs", "../../..")
    write(clone.work, ".bashrc")
    done = clone.tf("collect")
    assert f"can't write {clone.run_folder}/outputs: it is a link" in done.stderr
    assert (clone.run_folder / "logs/worker-0.log").read_text() == EVIL
    assert done.returncode == 1


@pytest.mark.parametrize("words", ["collect", "fetch worker:0 .bashrc", "report --offline"])
def test_nothing_is_written_into_a_run_that_is_a_link(clone, words):
    clone.run_folder.rename(clone.home / "docs" / RUN)
    clone.run_folder.symlink_to(clone.home / "docs" / RUN)
    write(clone.work, ".bashrc")
    before = clone.own_files()
    done = clone.tf(*words.split(), "--run", RUN) if "report" not in words else clone.tf(
        "report", RUN, "--offline"
    )  # fmt: skip
    assert clone.own_files() == before
    assert "it is a link" in done.stderr


def test_a_resume_sends_no_host_what_is_behind_a_link(clone):
    """It would give the new chief whatever files the links lead to."""
    save(clone.home / "docs", 7)
    for name in ("outputs", "checkpoints"):
        clone.link(name, "../../../docs")
    run = runs.load(clone.folder / "hosts.toml")
    assert checkpoint_copies.copies_on_controller(run) == []
    folder = outputs_folder(run, run.plan.chief)
    with pytest.raises(OSError, match="it is a link"):
        list(handover._units_on_controller(run, run, folder))


@pytest.mark.parametrize("name", ["fetched", "fetched/worker-0", ".incoming-fetched"])
def test_fetch_writes_and_deletes_nothing_through_a_link(clone, name):
    clone.link(name, os.path.relpath(clone.home, (clone.run_folder / name).parent))
    write(clone.work, ".bashrc", "docs/thesis")
    done = clone.tf("fetch", "worker:0", ".bashrc", "docs/thesis")
    assert "it is a link" in done.stderr
    assert clone.own_files() == clone.before


@pytest.mark.parametrize("name", ["logs/worker-0.log", "outputs/large", f"events/{EVENTS}"])
def test_a_file_that_is_a_link_is_replaced_and_not_followed(clone, name):
    clone.link(name, clone.home / ".bashrc")
    write(clone.work, "large")
    assert clone.tf("collect").returncode == 0
    assert clone.own_files() == clone.before
    assert (clone.run_folder / name).read_text() == EVIL


def test_a_large_log_does_not_come_through_a_link(clone):
    (clone.logs / "worker-0.log").write_bytes(bytes(range(256)) * 40_000)
    clone.link("logs/worker-0.log", clone.home / "docs/worker-0.log")
    assert clone.tf("collect").returncode == 0
    assert clone.own_files() == clone.before
    assert (clone.run_folder / "logs/worker-0.log").stat().st_size == 256 * 40_000


@pytest.mark.parametrize("name", [".collecting", ".resuming", "run.json"])
def test_locks_and_records_are_not_written_through_a_link(clone, name):
    if name == "run.json":
        (clone.run_folder / name).rename(clone.home / "docs" / name)
    clone.link(name, clone.home / "docs" / name)
    before = clone.own_files()
    for words in ("collect", "resume", "stop"):
        clone.tf(words)
    assert clone.own_files() == before


def test_a_runs_that_is_a_link_needs_trust(clone):
    (clone.folder / "runs").rename(clone.home / "docs" / "runs")
    (clone.folder / "runs").symlink_to("../docs/runs")
    before = clone.own_files()
    for words in (*READS, "collect", "status", "fetch worker:0 x"):
        done = clone.tf(*words.split())
        assert done.returncode == 2, done.stdout
        assert f'runs = "{clone.home}/docs/runs" is where the link runs leads' in done.stderr
    assert clone.own_files() == before
    assert "docs/runs" in clone.tf("trust").stdout
    assert clone.tf("collect").returncode == 0
    assert (clone.home / "docs/runs" / RUN / "logs/worker-0.log").read_text() == EVIL


def test_a_page_replaces_a_link(clone):
    clone.tf("collect")
    (clone.run_folder / "report.html").unlink(missing_ok=True)
    (clone.run_folder / "report.html").symlink_to(clone.home / ".bashrc")
    clone.tf("report", RUN, "--offline")
    assert clone.own_files() == clone.before


ODD_FOLDERS = (
    *("99999999-999999-ffff", "99991231-235959-ffff", "20261301-000000-ffff"),
    *("00010101-000000-ffff", "２０２６0101-000000-ffff", "n" * 250, "a\nb", "\x1b[31m", "-rf"),
)
ODD_VALUES = (
    '{"starts": -1}', '{"starts": NaN}', '{"starts": 1e300}', '{"name": "../x"}',
    '{"words": "x"}', '{"source": [1]}', '{"name": "\\ud800", "words": ["\\ud800"]}',
    "[" * 100_000, "9" * 5000, "", "{}",
)  # fmt: skip
COMMANDS = (
    *("runs", "status", "plan", "prune", "collect", "report --offline", "queue", "trials", "logs"),
    *(f"compare {RUN}", "start", "stop", "watch --once", "report 99991231-235959-ffff --offline"),
)


@pytest.mark.slow
def test_a_folder_with_an_odd_name_or_record_hides_no_run(clone):
    """Each command ends as it does without them, or with a sentence."""
    (clone.folder / "train.py").write_text("")  # so that plan and start get as far as the new run
    good = json.loads((clone.run_folder / "run.json").read_text())
    made = [clone.folder / "runs" / name for name in ODD_FOLDERS]
    for number, text in enumerate(ODD_VALUES):
        made.append(clone.folder / "runs" / f"20200101-000000-{number:04x}")
        odd = json.loads(text) if text.startswith('{"') else None
        (made[-1]).mkdir()
        (made[-1] / "run.json").write_text(json.dumps({**good, **odd}) if odd else text)
    for folder in made:
        folder.mkdir(exist_ok=True)
        for file in clone.run_folder.iterdir():
            if not (folder / file.name).exists():
                (folder / file.name).write_bytes(file.read_bytes())
    logs = clone.run_folder / "logs"
    logs.mkdir()
    (logs / "worker-0.history.jsonl").write_text('{"at": 1e300, "state": "READY"}\n')
    os.utime(logs, (1e13, 1e13))
    (clone.run_folder / "hashes.json").write_text('{"outputs/a": {"b": 1}}')
    for words in COMMANDS:
        done = clone.tf(*words.split())
        assert "Traceback" not in done.stderr, (words, done.stderr)
        assert done.returncode in (0, 1, 2, 3, 4, 5), (words, done)
        if words == "status":
            assert f"run {RUN}" in done.stdout
    started = [each.name for each in (clone.folder / "runs").iterdir() if each.name[:3] == "202"]
    assert max(started)[:4] < "2099"


TAB = {
    "_TFDEPLOY_COMPLETE": "complete_bash",
    "COMP_WORDS": "tfdeploy status --run ",
    "COMP_CWORD": "3",
}


@contextmanager
def little_memory():
    """Let processes that start meanwhile use at most 1 GB of address space."""
    old = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, old)


@pytest.mark.parametrize("name", ["run.json", "hosts.toml"])
@pytest.mark.parametrize("kind", ["endless", "fifo"])
def test_a_record_without_end_is_not_read(clone, name, kind):
    """Also for what a shell proposes after TAB."""
    (clone.run_folder / name).unlink()
    if kind == "fifo":
        os.mkfifo(clone.run_folder / name)
    else:
        clone.link(name, "/dev/zero")
    for words, more in ((["status"], {}), (["report", "--offline"], {}), ([], TAB)):
        with little_memory():
            done = subprocess.run(
                [*command_line.REAL, *words], cwd=clone.folder, capture_output=True, text=True,
                env={**os.environ, "HOME": str(clone.home), **more}, timeout=60,
            )  # fmt: skip
        assert "MemoryError" not in done.stderr
        assert "Traceback" not in done.stderr


def test_another_users_run_is_never_the_default(clone):
    """With the umask 000 they could create it in runs/."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder to another user")
    (clone.folder / "runs").chmod(0o777)
    planted = clone.folder / "runs" / "20990101-000000-aaaa"
    planted.mkdir()
    for file in clone.run_folder.iterdir():
        (planted / file.name).write_bytes(file.read_bytes())
    os.chown(planted, 65534, -1)
    assert f"run {RUN}" in clone.tf("status").stdout
    done = clone.tf("collect", "--run", planted.name)
    assert "it belongs to another user" in done.stderr
    assert clone.tf("collect").returncode == 0
    assert (clone.folder / "runs").stat().st_mode & 0o777 == 0o775


def test_a_sparse_file_without_end_takes_no_disk(clone):
    """Neither as an event file nor as a log, of which nobody announces the size."""
    for file in (clone.work / EVENTS, clone.logs / "worker-0.log"):
        os.truncate(file, 20 << 30)
    done = clone.tf("collect")
    assert "it is larger than one transfer takes" in done.stderr
    used = sum(file.stat().st_blocks * 512 for file in clone.run_folder.rglob("*"))
    assert used < 100 << 20
    assert (clone.run_folder / "checkpoints/model.ckpt-1.index").exists()


def test_a_name_of_250_bytes_is_collected(clone):
    name = "n" * 250
    write(clone.work, name)
    (clone.work / f"{'e' * 225}{EVENTS[:25]}").write_text(EVIL)
    done = clone.tf("collect")
    assert done.returncode == 0, done.stderr
    assert (clone.run_folder / "outputs" / name).read_text() == EVIL
