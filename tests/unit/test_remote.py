"""The agent travels as one file: the same bytes everywhere, shipped where it is absent, asked."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

import tfdeploy
from tfdeploy import bundle as bundles
from tfdeploy import session
from tfdeploy.agent import records, verbs
from tfdeploy.agent.verbs import MARK
from tfdeploy.errors import AgentError, CommandFailed
from tfdeploy.remote import Agent
from tfdeploy.transport.local import LocalTransport
from unit.made import eventually, inventory, launch


def agent(lines="", version=None):
    """The agent of this machine, in the home directory of the test."""
    host = inventory(f'[hosts.here]\ntransport = "local"\n{lines}').hosts[0]
    return Agent(LocalTransport("here"), host, version)


def shipped(home):
    return sorted(path.relative_to(home).as_posix() for path in home.glob(".tfdeploy/agent/*"))


OFFER = {"project": "p", "release": "f00d"}
LACKS = {**OFFER, "manifest": {}}
THERE = f".tfdeploy/agent/{bundles.current_version()}"


# The bundle


def test_the_bundle_is_the_same_whatever_the_times_of_its_files(tmp_path):
    copy = tmp_path / "tfdeploy"
    shutil.copytree(
        Path(tfdeploy.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__")
    )
    for file in copy.rglob("*"):
        os.utime(file, (1_000_000_000, 1_000_000_000))
    code = (
        "import hashlib, tfdeploy.bundle as r;"
        " print(r.__file__, hashlib.sha256(r.bundle()).hexdigest())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [
        os.fspath(copy / "bundle.py"),
        hashlib.sha256(bundles.bundle()).hexdigest(),
    ]


def test_the_bundle_holds_what_runs_on_hosts_and_nothing_else():
    names = zipfile.ZipFile(BytesIO(bundles.bundle())).namelist()
    package = Path(tfdeploy.__file__).parent
    assert sorted(names) == sorted(
        [
            "__main__.py",
            "tfdeploy/__init__.py",
            *(f"tfdeploy/agent/{file.name}" for file in package.glob("agent/*.py")),
            *(f"inside/{file.name}" for file in package.glob("inside/*.py")),
        ]
    )


def test_the_bundle_is_named_by_its_hash():
    assert bundles.current_version() == hashlib.sha256(bundles.bundle()).hexdigest()[:16]


@pytest.fixture
def bundle(tmp_path):
    """The bundle as it lies on a host."""
    folder = tmp_path / "root" / "agent" / "x"
    zipfile.ZipFile(BytesIO(bundles.bundle())).extractall(folder)
    return folder


def ask(bundle, verb, body):
    done = LocalTransport("here").run(
        [sys.executable, os.fspath(bundle), "serve"],
        stdin=session.question(verb, body),
        timeout_s=20,
    )
    assert done.exit == 0, done.stderr
    return done.stdout.decode()


def test_the_bundle_runs_by_itself(bundle):
    answer = json.loads(ask(bundle, "lacks", LACKS).removeprefix(MARK))
    assert answer["incoming"] == os.fspath(bundle.parents[1] / "p" / "releases" / ".incoming-f00d")


def test_a_python_that_is_too_old_says_so(bundle):
    """Its version is told to the agent's first lines, which any Python 3 must be able to read."""
    code = (
        "import runpy, sys; sys.version_info = (3, 6, 9, 'final', 0);"
        " runpy.run_path(sys.argv[1], run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, bundle, "serve"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert json.loads(done.stdout.removeprefix(MARK)) == {
        "refused": "Python 3.6 is too old, 3.8 is needed",
        "hint": "set the host's python to a newer one",
    }


@pytest.mark.parametrize(("verb", "body", "loads"), [
    ("offer", OFFER, True), ("ports", {"count": 1}, False),
])  # fmt: skip
def test_what_a_start_needs_is_loaded_once_nobody_asks_any_more(bundle, verb, body, loads):
    argv = [sys.executable, "-S", "-E", os.fspath(bundle), "serve"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as it:

        def has_loaded():
            return "_ctypes" in Path(f"/proc/{it.pid}/maps").read_text()

        def answer(*asked):
            it.stdin.write(session.question(*asked))
            it.stdin.flush()
            return json.loads(it.stdout.readline().decode().removeprefix(MARK))

        assert "failed" not in answer(verb, body)
        assert not has_loaded()
        assert eventually(has_loaded, 5.0 if loads else 3 * verbs.QUIET_S) is loads
        assert len(answer("ports", {"count": 1})["ports"]) == 1
        it.stdin.close()
        assert it.wait(10) == 0


# Shipping and asking


def test_an_absent_agent_is_shipped_once_and_closed_to_others(home):
    here = agent()
    first = here.ask("offer", OFFER)
    assert first["present"] is False
    assert shipped(home) == [THERE]
    written = (home / THERE).stat()
    assert written.st_mode & 0o077 == 0
    assert here.ask("offer", OFFER) == first
    assert (home / THERE).stat().st_mtime_ns == written.st_mtime_ns


@pytest.mark.parametrize("directory", ["~/work/deploy here/", "{tmp}/scratch"])
def test_the_agent_lies_where_the_host_says(home, tmp_path, directory):
    directory = directory.replace("{tmp}", os.fspath(tmp_path))
    answer = agent(f'directory = "{directory}"').ask("lacks", LACKS)
    root = Path(directory.replace("~", os.fspath(home)))
    assert answer["incoming"] == os.fspath(root / "p" / "releases" / ".incoming-f00d")


def test_a_python_may_lie_below_the_home(home):
    (home / "my env").mkdir()
    (home / "my env/python").symlink_to(sys.executable)
    assert agent('python = "~/my env/python"').ask("offer", OFFER)["present"] is False
    with pytest.raises(CommandFailed, match="~/no/python can't be run there: "):
        agent('python = "~/no/python"').ask("offer", OFFER)


def test_what_a_login_shell_is_given_holds_no_line_end(home, monkeypatch):
    seen = []
    begin = LocalTransport.run
    monkeypatch.setattr(
        LocalTransport,
        "run",
        lambda self, argv, **more: seen.append(argv) or begin(self, argv, **more),
    )
    agent().ask("offer", OFFER)
    assert len(seen) == 1  # it was shipped
    assert not any("\n" in word for argv in seen for word in argv)


def test_a_talkative_profile_does_not_disturb_the_answer(home, tmp_path):
    noisy = tmp_path / "python"
    noisy.write_text(f'#!/bin/sh\necho "Welcome!"; echo\n{sys.executable} "$@"\necho Bye\n')
    noisy.chmod(0o755)
    assert agent(f'python = "{noisy}"').ask("offer", OFFER)["present"] is False


def refused(act, error=AgentError):
    with pytest.raises(error) as caught:
        act()
    return str(caught.value)


def test_a_python_that_is_not_there_is_named(home):
    told = refused(lambda: agent('python = "/no/python"').ask("offer", OFFER), CommandFailed)
    assert told.startswith("here: /no/python can't be run there: ")
    assert told.endswith("\n  set the host's python in hosts.toml to the path of one, 3.8 or newer")


def test_a_python_that_is_none_is_told_with_its_last_words(home, tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no good >&2\nexit 3\n")
    broken.chmod(0o755)
    told = refused(lambda: agent(f'python = "{broken}"').ask("offer", OFFER))
    assert told == (
        "here: the agent gave no answer (exit 3): no good\n"
        f"  is {broken} a Python, 3.8 or newer? It is the host's python in hosts.toml"
    )


@pytest.mark.parametrize("answer", ["[1]", "{cut", "null"])
def test_an_answer_that_is_no_object_is_shown(home, tmp_path, answer):
    lying = tmp_path / "python"
    lying.write_text(
        f'#!/bin/sh\n[ "$4" = serve ] || exec {sys.executable} "$@"\necho \'{MARK}{answer}\'\n'
    )
    lying.chmod(0o755)
    told = refused(lambda: agent(f'python = "{lying}"').ask("offer", OFFER))
    assert told == f"here: the agent's answer is no JSON object: {answer!r}"


def test_what_the_agent_refuses_is_told_with_its_hint(home):
    order = records.to_json(launch(release="gone"))
    assert refused(lambda: agent().ask("start", {"launches": [order]})) == (
        "here: release gone is not on this host\n  tfdeploy push sends it there"
    )


def test_what_fails_in_the_agent_is_told(home):
    told = refused(lambda: agent().ask("offer", {"project": "p"}))
    assert told.startswith("here: the agent failed: TypeError: ")


def test_the_agent_of_an_older_run_is_never_replaced_by_a_newer_one(home):
    told = refused(lambda: agent(version="0123456789abcdef").ask("offer", OFFER))
    assert told == (
        "here: the agent that started this run is gone (.tfdeploy/agent/0123456789abcdef)\n"
        "  was the directory on the host removed?"
    )
    assert shipped(home) == []


def test_a_directory_that_can_not_be_made_is_told(home):
    (home / "taken").write_text("a file")
    told = refused(lambda: agent('directory = "~/taken"').ask("offer", OFFER), CommandFailed)
    assert told.startswith(f"here: taken/agent/{bundles.current_version()} can't be written: ")
    assert told.endswith("\n  see the host's directory key in hosts.toml")


def test_following_gives_answers_and_then_an_end(home):
    body = {"project": "p", "run": "r", "tasks": [], "logs": True, "lines": None, "forever": True}
    here = agent()
    here.ask("offer", OFFER)
    assert list(here.follow(body)) == [{"end": True}]


@pytest.mark.slow
def test_an_answer_without_an_end_is_refused_before_it_fills_our_memory(home, monkeypatch):
    monkeypatch.setattr(session, "MAX_LINE", 1000)
    agent().ask("offer", OFFER)
    endless = "import sys\nwhile True: sys.stdout.write('x' * 100)\n"
    (home / THERE / "__main__.py").write_text(endless)
    with pytest.raises(AgentError, match="its answer has no end"):
        list(agent().follow({}))


def pids(home):
    return (home / "pids").read_text().split()


def test_one_process_answers_question_after_question(home, tmp_path):
    """Also behind refusals, and behind what is followed; a process that is asked at the same time
    is another one."""
    counting = tmp_path / "python"
    counting.write_text(f'#!/bin/sh\necho $$ >> pids\nexec {sys.executable} "$@"\n')
    counting.chmod(0o755)
    here = agent(f'python = "{counting}"')
    here.ask("offer", OFFER)
    before = len(pids(home))
    refused(lambda: here.ask("start", {"launches": [records.to_json(launch(release="gone"))]}))
    refused(lambda: here.ask("offer", {}))
    list(here.follow({**OFFER, "run": "r", "tasks": [], "logs": True, "lines": 1, "forever": True}))
    assert here.ask("offer", OFFER)["present"] is False
    assert len(pids(home)) == before
    here.close()


def test_a_follow_that_is_enough_gives_its_process_back(home, monkeypatch):
    here = agent()
    here.ask("offer", OFFER)
    task_dir = home / ".tfdeploy/p/runs/r/ps-0"
    task_dir.mkdir(parents=True)
    with (task_dir / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # alive
        records.write(os.fspath(task_dir / "launch.json"), records.to_json(launch(job="ps")))
        followed_until_enough(here)
    assert len(here._idle) == 1
    assert here.ask("offer", OFFER)["present"] is False


def followed_until_enough(here):
    told = here.follow(
        {"project": "p", "run": "r", "tasks": ["ps:0"], "logs": True, "lines": None,
         "forever": True}
    )  # fmt: skip
    answers = iter(told)
    assert "state" in next(answers)
    told.enough()
    assert list(answers) == [{"end": True}]
    told.close()


def test_an_agent_whose_directory_is_removed_is_shipped_again(home):
    here = agent()
    here.ask("offer", OFFER)
    shutil.rmtree(home / ".tfdeploy")
    assert here.ask("offer", OFFER)["present"] is False
    assert shipped(home) == [THERE]
