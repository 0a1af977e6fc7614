"""The agent is one zip. A host that lacks it gets it, and then answers typed requests."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from support.builders import NOBODY_UID, make_inventory, make_launch

import tfdeploy
from tfdeploy.errors import AgentError, CommandFailed
from tfdeploy.hosts import agent_bundle as bundles
from tfdeploy.hosts import agent_session
from tfdeploy.hosts.agent_client import Agent
from tfdeploy.shared import records
from tfdeploy.shared.protocol.message import MARK, Request
from tfdeploy.shared.protocol.releases import FindRelease, ListMissing
from tfdeploy.shared.protocol.reports import Follow, ReadFiles, StateChange
from tfdeploy.shared.protocol.runs import Start
from tfdeploy.transport.local import LocalTransport

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two users")


def agent(lines="", version=None):
    """The agent of this machine, in the home directory of the test."""
    host = make_inventory(f'[hosts.here]\ntransport = "local"\n{lines}').hosts[0]
    return Agent(LocalTransport("here"), host, version)


def shipped(home):
    return sorted(path.relative_to(home).as_posix() for path in home.glob(".tfdeploy/agent/*"))


OFFER = FindRelease("p", "f00d")
LACKS = ListMissing("p", "f00d", {})
FOLLOW = Follow("p", "r", [], logs=True, lines=None, forever=True)
THERE = f".tfdeploy/agent/{bundles.current_version()}"


# The bundle


def test_the_bundle_does_not_depend_on_file_times(tmp_path):
    copy = tmp_path / "tfdeploy"
    shutil.copytree(
        Path(tfdeploy.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__")
    )
    for file in copy.rglob("*"):
        os.utime(file, (1_000_000_000, 1_000_000_000))
    code = (
        "import hashlib, tfdeploy.hosts.agent_bundle as r;"
        " print(r.__file__, hashlib.sha256(r.bundle()).hexdigest())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [
        os.fspath(copy / "hosts" / "agent_bundle.py"),
        hashlib.sha256(bundles.bundle()).hexdigest(),
    ]


def test_the_bundle_has_exactly_what_runs_on_hosts():
    names = zipfile.ZipFile(BytesIO(bundles.bundle())).namelist()
    package = Path(tfdeploy.__file__).parent
    assert sorted(names) == sorted(
        [
            "__main__.py",
            "tfdeploy/__init__.py",
            *(
                f"tfdeploy/{file.relative_to(package)}"
                for folder in ("agent", "shared")
                for file in package.glob(f"{folder}/**/*.py")
            ),
            *(f"inside/{file.name}" for file in package.glob("inside/*.py")),
            *(f"preload/{file.name}" for file in package.glob("inside/preload/*.so")),
        ]
    )


def test_the_bundle_is_named_by_its_hash():
    assert bundles.current_version() == hashlib.sha256(bundles.bundle()).hexdigest()[:16]


@pytest.fixture
def bundle(tmp_path):
    """Unpack the bundle as on a host."""
    folder = tmp_path / "root" / "agent" / "x"
    zipfile.ZipFile(BytesIO(bundles.bundle())).extractall(folder)
    return folder


def ask(bundle, request):
    done = LocalTransport("here").run(
        [sys.executable, os.fspath(bundle), "serve"],
        stdin=agent_session.query(request).data,
        timeout_s=120,
    )
    assert done.exit == 0, done.stderr
    return done.stdout.decode()


def test_the_bundle_runs_by_itself(bundle):
    answer = json.loads(ask(bundle, LACKS).removeprefix(MARK))
    assert answer["incoming"] == os.fspath(bundle.parents[1] / "p" / "releases" / ".incoming-f00d")


def test_a_too_old_python_is_reported(bundle):
    """Its version is known to the agent's first lines, which any Python 3 must be able to read."""
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


# Shipping and asking


def test_a_missing_agent_is_sent_once_and_is_private(home):
    here = agent()
    first = here.ask(OFFER)
    assert first.present is False
    assert shipped(home) == [THERE]
    written = (home / THERE).stat()
    assert written.st_mode & 0o077 == 0
    assert here.ask(OFFER) == first
    assert (home / THERE).stat().st_mtime_ns == written.st_mtime_ns


@pytest.mark.parametrize("directory", ["~/work/deploy here/", "{tmp}/scratch"])
def test_the_agent_is_stored_in_the_hosts_directory(home, tmp_path, directory):
    directory = directory.replace("{tmp}", os.fspath(tmp_path))
    answer = agent(f'directory = "{directory}"').ask(LACKS)
    root = Path(directory.replace("~", os.fspath(home)))
    assert answer.incoming == os.fspath(root / "p" / "releases" / ".incoming-f00d")


def test_a_python_in_the_home_directory_is_found(home):
    (home / "my env").mkdir()
    (home / "my env/python").symlink_to(sys.executable)
    assert agent('python = "~/my env/python"').ask(OFFER).present is False
    with pytest.raises(CommandFailed, match="can't run ~/no/python: "):
        agent('python = "~/no/python"').ask(OFFER)


def test_commands_for_a_login_shell_have_no_line_break(home, monkeypatch):
    commands = []
    run = LocalTransport.run
    monkeypatch.setattr(
        LocalTransport,
        "run",
        lambda self, argv, **more: commands.append(argv) or run(self, argv, **more),
    )
    agent().ask(OFFER)
    assert len(commands) == 1  # the agent was sent
    assert not any("\n" in word for argv in commands for word in argv)


def test_a_shell_profile_that_prints_does_not_disturb_the_answer(home, tmp_path):
    noisy = tmp_path / "python"
    noisy.write_text(f'#!/bin/sh\necho "Welcome!"; echo\n{sys.executable} "$@"\necho Bye\n')
    noisy.chmod(0o755)
    assert agent(f'python = "{noisy}"').ask(OFFER).present is False


def error_of(act, error=AgentError):
    with pytest.raises(error) as caught:
        act()
    return str(caught.value)


def test_a_missing_python_is_named(home):
    message = error_of(lambda: agent('python = "/no/python"').ask(OFFER), CommandFailed)
    assert message.startswith("here: can't run /no/python: ")
    assert message.endswith(
        "\n  set the host's python in hosts.toml to the path of a Python, 3.8 or newer"
    )


def test_a_program_that_is_no_python_is_reported_with_its_last_line(home, tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no good >&2\nexit 3\n")
    broken.chmod(0o755)
    message = error_of(lambda: agent(f'python = "{broken}"').ask(OFFER))
    assert message == (
        "here: the agent gave no answer (exit 3): no good\n"
        f"  check that {broken}, the host's python in hosts.toml, is Python 3.8 or newer"
    )


@pytest.mark.parametrize("answer", ["[1]", "{cut", "null"])
def test_an_answer_that_is_no_json_object_is_shown(home, tmp_path, answer):
    lying = tmp_path / "python"
    lying.write_text(
        f'#!/bin/sh\n[ "$4" = serve ] || exec {sys.executable} "$@"\necho \'{MARK}{answer}\'\n'
    )
    lying.chmod(0o755)
    message = error_of(lambda: agent(f'python = "{lying}"').ask(OFFER))
    assert message == f"here: invalid answer: expected a JSON object, found {answer!r}"


def test_a_refusal_of_the_agent_is_raised_with_its_hint(home):
    assert error_of(lambda: agent().ask(Start([make_launch(release="gone")]))) == (
        "here: release gone is not on this host\n  send it with tfdeploy push"
    )


class Misspelt(Request[FindRelease], tag="offer"):
    """A request without a field that it needs."""

    project: str
    realease: str


def test_the_agent_names_a_missing_field(home):
    failed = error_of(lambda: agent().ask(Misspelt("p", "f00d")))
    assert failed == "here: the agent failed: invalid request offer: FindRelease has no release"


class Unknown(Request[FindRelease], tag="foresee"):
    """A request of another version."""


def test_the_agent_names_an_unknown_request(home):
    refused = error_of(lambda: agent().ask(Unknown()))
    assert refused == (
        "here: this agent does not know the request 'foresee'\n"
        "  another version of tfdeploy started this run: use that one for it"
    )


def test_an_exception_in_the_agent_is_reported(home):
    failed = error_of(lambda: list(agent().stream(ReadFiles("/", [("\0", 0, "")], 1))))
    assert failed.startswith("here: the agent failed: ValueError: ")


def test_the_agent_of_an_older_run_is_never_replaced(home):
    message = error_of(lambda: agent(version="0123456789abcdef").ask(OFFER))
    assert message == (
        "here: the agent that started this run is gone (.tfdeploy/agent/0123456789abcdef)\n"
        "  was the directory on the host deleted?"
    )
    assert shipped(home) == []


def test_a_directory_that_cannot_be_created_is_reported(home):
    (home / "taken").write_text("a file")
    message = error_of(lambda: agent('directory = "~/taken"').ask(OFFER), CommandFailed)
    assert message.startswith(f"here: can't write taken/agent/{bundles.current_version()}: ")
    assert message.endswith(
        "\n  set the host's directory in hosts.toml to one that its user may write"
    )


def test_a_stream_of_answers_ends(home):
    here = agent()
    here.ask(OFFER)
    assert list(here.stream(FOLLOW)) == []


def pids(home):
    return (home / "pids").read_text().split()


def test_one_process_answers_one_request_after_another(home, tmp_path):
    """Also after a refusal, and after a stream of answers."""
    counting = tmp_path / "python"
    counting.write_text(f'#!/bin/sh\necho $$ >> pids\nexec {sys.executable} "$@"\n')
    counting.chmod(0o755)
    here = agent(f'python = "{counting}"')
    here.ask(OFFER)
    before = len(pids(home))
    error_of(lambda: here.ask(Start([make_launch(release="gone")])))
    error_of(lambda: here.ask(Misspelt("p", "f00d")))
    list(here.stream(FOLLOW))
    assert here.ask(OFFER).present is False
    assert len(pids(home)) == before
    here.close()


LONG = ListMissing("p", "f00d", {f"file{n}": ["-", f"{n:064x}"] for n in range(200)})


def test_a_long_request_is_sent_compressed(home, monkeypatch):
    sent = []
    send = agent_session.Session.write

    def counting(session, data, payload=()):
        sent.append(len(data))
        send(session, data, payload)

    monkeypatch.setattr(agent_session.Session, "write", counting)
    here = agent()
    here.ask(OFFER)
    assert len(here.ask(LONG).wanted) == 200
    assert sent[-1] < len(here.query(LONG).data) / 3
    assert here.ask(OFFER).present is False  # the next request is found after it


def task_lock(home):
    """Make a task that was started; return the open file that its supervisor would lock."""
    task_dir = home / ".tfdeploy/p/runs/r/ps-0"
    task_dir.mkdir(parents=True)
    records.write(os.fspath(task_dir / "launch.json"), records.to_json(make_launch(job="ps")))
    return (task_dir / "lock").open("w")


def test_a_finished_stream_returns_its_process(home, monkeypatch):
    here = agent()
    here.ask(OFFER)
    with task_lock(home) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # alive
        follow_until_finished(here)
    assert len(here._idle) == 1
    assert here.ask(OFFER).present is False


@pytest.mark.parametrize("lives", [True, False], ids=["followed", "ended by itself"])
def test_a_stream_may_end_with_the_answer_to_the_next_request(home, lives):
    """Its process answers both, also if the stream has ended while the request was sent."""
    here = agent()
    here.ask(OFFER)
    with task_lock(home) as lock:
        if lives:
            fcntl.flock(lock, fcntl.LOCK_EX)
        stream = here.stream(Follow("p", "r", ["ps:0"], logs=False, lines=None, forever=True))
        assert isinstance(stream.open(), StateChange)
        stream.finish_with(OFFER)
        assert list(stream) == []
    assert stream.next_answer.present is False
    assert len(here._idle) == 1
    assert here.ask(OFFER).present is False


def test_a_request_for_the_end_of_a_stream_that_has_ended_is_not_sent(home):
    here = agent()
    here.ask(OFFER)
    stream = here.stream(FOLLOW)
    assert list(stream) == []
    stream.finish_with(OFFER)
    assert stream.next_answer is None
    assert here.ask(OFFER).present is False


def follow_until_finished(here):
    stream = here.stream(Follow("p", "r", ["ps:0"], logs=True, lines=None, forever=True))
    answers = iter(stream)
    assert isinstance(next(answers), StateChange)
    stream.finish()
    assert list(answers) == []
    stream.close()


def test_an_agent_whose_directory_was_deleted_is_sent_again(home):
    here = agent()
    here.ask(OFFER)
    shutil.rmtree(home / ".tfdeploy")
    assert here.ask(OFFER).present is False
    assert shipped(home) == [THERE]


# Another user's folders


@pytest.fixture
def open_folder():
    """A folder that all users of the machine may write, with the sticky bit, like /tmp."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o1777)
        yield Path(name)


def plant_agent(directory, owner):
    """Store as `owner` what would run as the agent; return the file that it would write."""
    folder = directory / "agent" / bundles.current_version()
    folder.mkdir(parents=True)
    proof = directory / "proof"
    (folder / "__main__.py").write_text(f"open({os.fspath(proof)!r}, 'w').close()")
    for path in (directory, folder.parent, folder):
        os.chown(path, owner, owner)
    return proof


@root_only
def test_an_agent_that_another_user_has_stored_is_not_run(open_folder):
    directory = open_folder / "tfdeploy"
    proof = plant_agent(directory, NOBODY_UID)
    message = error_of(lambda: agent(f'directory = "{directory}"').ask(OFFER), CommandFailed)
    assert f"{directory}/agent belongs to another user, who could replace the agent" in message
    assert not proof.exists()


@root_only
def test_no_agent_is_stored_in_a_folder_of_another_user(open_folder):
    (open_folder / "tfdeploy/agent").mkdir(parents=True)
    os.chown(open_folder / "tfdeploy/agent", NOBODY_UID, NOBODY_UID)
    (open_folder / "tfdeploy/agent").chmod(0o777)
    with pytest.raises(CommandFailed, match="belongs to another user"):
        agent(f'directory = "{open_folder}/tfdeploy"').ask(OFFER)
    assert list((open_folder / "tfdeploy/agent").iterdir()) == []


@root_only
def test_a_project_folder_of_another_user_is_refused(home, tmp_path):
    (home / ".tfdeploy").mkdir()
    (home / ".tfdeploy/p").mkdir()
    os.chown(home / ".tfdeploy/p", NOBODY_UID, NOBODY_UID)
    message = error_of(lambda: agent().ask(LACKS))
    assert f"{home}/.tfdeploy/p belongs to another user" in message


def test_no_agent_is_stored_in_a_folder_that_another_user_could_rename(open_folder):
    (open_folder / "lab").mkdir()
    (open_folder / "lab").chmod(0o777)
    directory = open_folder / "lab/me"
    with pytest.raises(CommandFailed) as refused:
        agent(f'directory = "{directory}"').ask(OFFER)
    assert refused.value.message.startswith(f"{open_folder}/lab belongs to ")
    assert refused.value.hint.startswith(f"chmod go-w {open_folder}/lab; or set")
    assert list((directory / "agent").iterdir()) == []


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_nothing_is_stored_once_another_user_could_rename_the_directory(open_folder, mode):
    lab, group = open_folder / "lab", 12345
    lab.mkdir()
    here = agent(f'directory = "{lab}/me"')
    here.ask(LACKS)
    if os.geteuid() == 0:
        os.chown(lab, -1, group)
    lab.chmod(mode)
    if mode == 0o775 and os.geteuid():
        pytest.skip("only root can give a folder to another group")
    with pytest.raises(AgentError, match=f"{lab} belongs to .* and has mode 0{mode:o}, so that"):
        here.ask(LACKS)


def test_a_project_folder_that_others_could_write_is_closed(home):
    (home / ".tfdeploy/p").mkdir(parents=True)
    (home / ".tfdeploy/p").chmod(0o777)
    agent().ask(LACKS)
    assert (home / ".tfdeploy/p").stat().st_mode & 0o022 == 0
