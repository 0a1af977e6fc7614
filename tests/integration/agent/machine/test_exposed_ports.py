"""Ports that a guarded task opens and the guard does not cover: reported, or the task's end."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest
from support.builders import eventually, make_heartbeat_settings

import tfdeploy
from integration.agent.supervised_task import RUN_FOREVER

PRELOAD = Path(tfdeploy.__file__).parent / "inside" / "preload"
ALONE = make_heartbeat_settings(tasks=["worker:0"], needed=[])
# The port that the task opens besides its own is written to its directory.
NOTE = "open('port', 'w').write(str(other.getsockname()[1])); "
TCP = "other = socket.create_server(('', 0)); " + NOTE
UDP = "other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); other.bind(('', 0)); " + NOTE
CHILD = (
    "words = [sys.executable, '-S', '-c', 'import socket, time; ' + {code!r} + 'time.sleep(600)']; "
    "subprocess.Popen(words, env={{}}, start_new_session=True); "
)


@pytest.fixture
def run_guarded(supervise, root):
    """Start a task that opens a port besides its own, with the guard's library."""
    shutil.copytree(PRELOAD, root / "agent" / "abc.pyz" / "preload")

    def run(code, network="guarded"):
        return supervise(code + RUN_FOREVER, network=network, heartbeat=ALONE)

    return run


def noted_port(task):
    file = Path(task.task_dir, "work", "port")
    assert eventually(lambda: file.exists() and file.read_text())
    return file.read_text()


def test_a_port_of_a_guarded_process_is_not_reported(run_guarded):
    task = run_guarded(TCP)
    assert task.reaches("READY")
    noted_port(task)
    assert not eventually(lambda: task.state.exposed, within_s=1.0)
    assert task.state.state == "READY"


@pytest.mark.parametrize(
    ("code", "expected"), [(CHILD.format(code=TCP), "tcp port {}"), (UDP, "udp port {}")],
    ids=["a process without the library", "udp"],
)  # fmt: skip
def test_a_port_that_the_guard_does_not_cover_is_reported(run_guarded, code, expected):
    task = run_guarded(code)
    assert task.reaches("READY")
    port = noted_port(task)
    assert eventually(lambda: task.state.exposed)
    assert task.state.exposed.startswith(expected.format(port) + " of pid ")
    assert task.state.state == "READY"


def test_a_port_that_is_closed_again_is_not_reported_any_more(run_guarded):
    close = "threading.Thread(target=lambda: (wait_for('close'), other.close())).start(); "
    wait = "def wait_for(name):\n    while not os.path.exists(name): time.sleep(0.01)\n"
    task = run_guarded(wait + UDP + close)
    assert eventually(lambda: task.state.exposed)
    Path(task.task_dir, "work", "close").touch()
    assert eventually(lambda: not task.state.exposed)


@pytest.mark.parametrize("code", [CHILD.format(code=TCP), UDP])
def test_a_strict_task_ends_with_a_port_that_the_guard_does_not_cover(run_guarded, code):
    task = run_guarded(code, network="strict")
    ended = task.wait_for_end()
    assert ended.state == "FAILED"
    assert ended.reason.startswith("the guard does not cover ")
    assert 'network = "guarded" in hosts.toml would only report it' in ended.reason


def test_an_open_task_is_not_looked_at(run_guarded):
    task = run_guarded(UDP, network="open")
    assert task.reaches("READY")
    noted_port(task)
    assert not eventually(lambda: task.state.exposed, within_s=1.0)


def test_ports_of_others_are_not_reported(run_guarded):
    with socket.create_server(("127.0.0.1", 0)):
        task = run_guarded("")
        assert task.reaches("READY")
        assert not eventually(lambda: task.state.exposed, within_s=1.0)
