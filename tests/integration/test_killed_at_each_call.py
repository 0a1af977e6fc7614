"""A command, its agent or a supervisor is killed just before any of its calls that others can see,
and the next command finds a consistent state.

Some calls of every kind; in a soak (`make soak`) all of them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.killed_calls import Watched, chosen
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.projects import Project

pytestmark = pytest.mark.slow
CALLS = int(os.environ.get("TFDEPLOY_FUZZ_KILLED_CALLS", "6"))  # of one of these on this machine:
MAIN = ("push", "start", "collect", "prune")
FEWER = -(-CALLS // 3)  # of others, of an agent or a supervisor, and over SSH
# A name that tfdeploy gives to what is not complete yet.
PARTIAL = re.compile(
    r"\.tfdeploy-|\.new$|/key\.|/\.incoming|/held$|\.part$|/\.[a-z]+-\w+\.new|\.d$"
)
VICTIMS = ["controller", "agent"]
PARTIES = [("local", "controller"), ("local", "agent"), ("by_ssh", "controller")]
PUSHED = {"data/words.txt": "a b c\n", "lib/net.py": "LAYERS = 3\n"}


@pytest.fixture
def project(request, tmp_path, monkeypatch):
    """A project on this machine. Every command has an agent of its own, or, over SSH, the
    connection daemon's."""
    if not shutil.which("cc"):
        pytest.skip("cc missing: apt-get install gcc")
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    transport = getattr(request, "param", "local")
    world = request.getfixturevalue(transport)
    hosts = world.hosts()
    for name, host in hosts.items():
        host["directory"] = str(tmp_path / name)
    top = {"keep_connections_s": 0} if transport == "local" else {}
    created = world.project("--hold", top=top, hosts=hosts)
    for name, text in PUSHED.items():
        (created.folder / name).parent.mkdir(exist_ok=True)
        (created.folder / name).write_text(text)
    return created


def sweep(
    project: Project, words: tuple[str, ...], victim: str,
    reset: Callable[[], None], check: Callable[[], None],
) -> None:  # fmt: skip
    """Kill the victim at its calls, each time from the state that `reset` makes, and `check`."""
    reset()
    undisturbed = Watched(project, words, victim, 0)
    assert undisturbed.done.returncode == 0, undisturbed.done
    calls = undisturbed.calls
    failures = []
    is_main = words[0] in MAIN and victim == "controller" and "here" in project.hosts
    # With the first one, the process only reports its pid to the test.
    for at in chosen(calls, CALLS if is_main else FEWER)[1:]:
        reset()
        killed = Watched(project, words, victim, at)
        call = f"{' '.join(words)}, call {at}, {killed.calls[-1:]}"
        if len(killed.calls) < at:  # threads took other turns
            continue
        try:
            assert "Traceback" not in killed.done.stderr, killed.done.stderr
            check()
            assert partial_files(project) == [], "partial files"
        except AssertionError as error:
            failures.append(f"{call}: {error}")
            project.end()
    assert not failures, "\n\n".join([f"{len(calls)} calls", *failures])


def on_hosts(project: Project) -> list[Path]:
    return [project.on(host) for host in project.hosts]


def partial_files(project: Project) -> list[str]:
    """Return what is not complete, except in runs on hosts, with which `prune` deletes it."""
    hosts = on_hosts(project)
    tops = [project.folder, *(host.parent for host in hosts), Path(os.environ["XDG_CONFIG_HOME"])]
    found = (path for top in tops for path in top.rglob("*"))
    in_runs = {host / "runs" for host in hosts}
    return [str(p) for p in found if not in_runs & {*p.parents} and PARTIAL.search(str(p))]


def delete(*folders: Path) -> None:
    for folder in folders:
        subprocess.run(["chmod", "-R", "u+rwx", folder], stderr=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)


def looks(project: Project) -> None:
    """Require that commands that only look say something, and nothing of a defect."""
    for words in (("status",), ("runs",), ("prune", "--dry-run")):
        done = project.tf(*words)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == 0 or words[0] == "status", done


def starts(project: Project) -> None:
    """Require that a start succeeds, at once or after the stop of the run that it names."""
    again = project.tf("start")
    if again.returncode:
        assert project.runs, again.stderr
        assert project.runs[0] in again.stderr, again.stderr
        project.ok("stop")
        assert project.processes() == {}
        project.ok("start")
    assert {task["state"] for task in project.status().values()} == {"READY"}
    project.ok("stop")
    assert project.processes() == {}


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_push(project, victim):
    host = project.on("here")

    def reset():
        delete(host.parent)

    def check():
        looks(project)
        for release in project.releases("here"):
            assert (release / "lib/net.py").read_text() == PUSHED["lib/net.py"]
        project.ok("push")
        [release] = project.releases("here")
        assert {name: (release / name).read_text() for name in PUSHED} == PUSHED
        assert [*release.parent.glob(".*")] == []
        assert len([*(host.parent / "agent").iterdir()]) == 1

    sweep(project, ("push",), victim, reset, check)


@pytest.mark.parametrize(
    ("project", "victim"), [*PARTIES, ("local", "supervisor")], indirect=["project"]
)
def test_a_start(project, victim):
    project.ok("push")
    config = Path(os.environ["XDG_CONFIG_HOME"])

    def reset():
        if (project.folder / "runs").exists():
            project.tf("stop")
        delete(project.folder / "runs", *(host / "runs" for host in on_hosts(project)))
        for key in (config / "tfdeploy").glob("key*"):
            key.unlink()

    def check():
        looks(project)
        starts(project)
        assert (project.folder / "runs" / ".gitignore").read_text() == "*\n"

    sweep(project, ("start",), victim, reset, check)


@pytest.mark.parametrize(("project", "victim"), PARTIES, indirect=["project"])
def test_a_collect(project, victim):
    project.ok("push")
    project.ok("start")
    source = project.work("worker:0") / "checkpoints"
    (source.parent / "numbers.npy").write_bytes(b"\x93NUMPY")
    (source.parent / "result.json").write_text("{}")
    until(lambda: (source / "checkpoint").exists(), "a checkpoint")
    project.ok("stop")
    folder = project.run_folder
    own = {path.name for path in folder.iterdir()}

    def reset():
        delete(*(path for path in folder.iterdir() if path.is_dir()))
        for path in folder.iterdir():
            if path.name not in own:
                path.unlink()
        # As a kill near the end leaves it; ps:0 has nothing to send any more.
        (folder / ".incoming-outputs-ps-0").mkdir()

    def check():
        for index in folder.glob("checkpoints/*.index"):
            same_checkpoint(index.stem)
        state = folder / "checkpoints/checkpoint"
        for name in re.findall(r'"(.+)"', state.read_text()) if state.exists() else ():
            same_checkpoint(name)
        looks(project)
        project.ok("collect")
        same_checkpoint(re.findall(r'"(.+)"', state.read_text())[0])
        assert (folder / "outputs/result.json").read_text() == "{}"

    def same_checkpoint(name):
        files = {path.name: path.read_bytes() for path in source.glob(f"{name}.*")}
        assert len(files) > 1
        assert {n: (folder / "checkpoints" / n).read_bytes() for n in files} == files

    sweep(project, ("collect",), victim, reset, check)


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_prune(project, victim):
    project.ok("push")
    project.ok("start")
    project.ok("stop")
    host, copy = project.on("here"), project.on("here").parent / "copy"
    subprocess.run(["cp", "-a", host, copy], check=True)

    def reset():
        delete(host)
        subprocess.run(["cp", "-a", copy, host], check=True)

    def check():
        looks(project)
        project.ok("prune", "--keep", "0", "--yes")
        for part in ("runs", "releases", "manifests"):
            assert [*(host / part).iterdir()] == []
        looks(project)

    sweep(project, ("prune", "--keep", "0", "--yes"), victim, reset, check)
    project.ok("push")
    starts(project)


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_stop(project, victim):
    project.ok("push")

    def reset():
        if not project.processes():
            project.ok("start")

    def check():
        looks(project)
        project.ok("stop")
        assert project.processes() == {}
        assert {task["state"] for task in project.status().values()} == {"STOPPED"}

    sweep(project, ("stop",), victim, reset, check)


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_resume(project, victim):
    project.ok("push")
    project.ok("start")

    def reset():
        project.ok("stop")

    def check():
        looks(project)
        if project.tf("resume").returncode:
            project.ok("stop")
            project.ok("resume")
        assert {task["state"] for task in project.status().values()} == {"READY"}
        project.ok("collect")

    sweep(project, ("resume",), victim, reset, check)
