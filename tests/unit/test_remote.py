"""The agent travels as one file: the same bytes everywhere, shipped where it is absent, asked."""

from __future__ import annotations

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
from tfdeploy import remote
from tfdeploy.agent import records
from tfdeploy.agent.records import MARK
from tfdeploy.errors import AgentError, CommandFailed
from tfdeploy.remote import Agent
from tfdeploy.transport.local import LocalTransport
from unit.made import inventory, launch


def agent(lines="", version=None):
    """The agent of this machine, in the home directory of the test."""
    host = inventory(f'[hosts.here]\ntransport = "local"\n{lines}').hosts[0]
    return Agent(LocalTransport("here"), host, version)


def shipped(home):
    return sorted(path.relative_to(home).as_posix() for path in home.rglob("*.pyz*"))


OFFER = {"project": "p", "release": "f00d"}
THERE = f".tfdeploy/agent/{remote.current_version()}.pyz"


# The bundle


def test_the_bundle_is_the_same_whatever_the_times_of_its_files(tmp_path):
    copy = tmp_path / "tfdeploy"
    shutil.copytree(
        Path(tfdeploy.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__")
    )
    for file in copy.rglob("*"):
        os.utime(file, (1_000_000_000, 1_000_000_000))
    code = (
        "import hashlib, tfdeploy.remote as r;"
        " print(r.__file__, hashlib.sha256(r.bundle()).hexdigest())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [
        os.fspath(copy / "remote.py"),
        hashlib.sha256(remote.bundle()).hexdigest(),
    ]


def test_the_bundle_holds_what_runs_on_hosts_and_nothing_else():
    names = zipfile.ZipFile(BytesIO(remote.bundle())).namelist()
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
    assert remote.current_version() == hashlib.sha256(remote.bundle()).hexdigest()[:16]


@pytest.fixture
def bundle(tmp_path):
    """The bundle as it lies on a host."""
    file = tmp_path / "root" / "agent" / "x.pyz"
    file.parent.mkdir(parents=True)
    file.write_bytes(remote.bundle())
    return file


def ask(bundle, verb, body):
    done = LocalTransport("here").run(
        [sys.executable, os.fspath(bundle), verb], stdin=json.dumps(body).encode(), timeout_s=20
    )
    assert done.exit == 0, done.stderr
    return done.stdout.decode()


def test_the_bundle_runs_by_itself(bundle):
    answer = json.loads(ask(bundle, "offer", OFFER).removeprefix(MARK))
    assert answer["incoming"] == os.fspath(bundle.parents[1] / "p" / "releases" / ".incoming-f00d")


def test_a_python_that_is_too_old_says_so(bundle):
    """Its version is told to the agent's first lines, which any Python 3 must be able to read."""
    code = (
        "import runpy, sys; sys.version_info = (3, 6, 9, 'final', 0);"
        " runpy.run_path(sys.argv[1], run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, bundle, "offer"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert json.loads(done.stdout.removeprefix(MARK)) == {
        "refused": "Python 3.6 is too old, 3.8 is needed",
        "hint": "set the host's python to a newer one",
    }


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
    answer = agent(f'directory = "{directory}"').ask("offer", OFFER)
    root = Path(directory.replace("~", os.fspath(home)))
    assert answer["incoming"] == os.fspath(root / "p" / "releases" / ".incoming-f00d")


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
    assert told.endswith(
        "\n  set the host's python in hosts.toml to the absolute path of one, 3.8 or newer"
    )


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
    lying.write_text(f"#!/bin/sh\necho '{MARK}{answer}'\n")
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
        "here: the agent that started this run is gone (.tfdeploy/agent/0123456789abcdef.pyz)\n"
        "  was the directory on the host removed?"
    )
    assert shipped(home) == []


def test_a_directory_that_can_not_be_made_is_told(home):
    (home / "taken").write_text("a file")
    told = refused(lambda: agent('directory = "~/taken"').ask("offer", OFFER), CommandFailed)
    assert told.startswith(f"here: taken/agent/{remote.current_version()}.pyz can't be written: ")
    assert told.endswith("\n  see the host's directory key in hosts.toml")


def test_following_gives_answers_and_then_an_end(home):
    body = {"project": "p", "run": "r", "tasks": [], "logs": True, "lines": None, "forever": True}
    here = agent()
    here.ask("offer", OFFER)
    stream, answers = here.follow(body)
    assert list(answers) == [{"end": True}]
    stream.close()


def test_an_answer_without_an_end_is_refused_before_it_fills_our_memory(home, monkeypatch):
    monkeypatch.setattr(remote, "MAX_LINE", 1000)
    here = agent()
    here.ask("offer", OFFER)
    endless = f"#!{sys.executable}\nimport sys\nwhile True: sys.stdout.write('x' * 100)\n"
    (home / THERE).write_text(endless)
    stream, answers = here.follow({})
    with pytest.raises(AgentError, match="its answer has no end"):
        list(answers)
    stream.close()
