"""A summary reaches a command or a URL, or the reason why it did not; nothing hangs."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest
from support.builders import end_processes, make_launch, start_python
from support.sshd import alive
from support.waiting import until
from support.webhook import BROKEN, REDIRECT, SLOW, webhook

from tfdeploy.agent.reports import notify
from tfdeploy.shared import records
from tfdeploy.shared.records import Notification

DOCUMENT = json.dumps({"text": "p: run r succeeded after 1s"}).encode()
SAVE = "import os, pathlib, sys; pathlib.Path('got').write_text(sys.stdin.read())"


def send(target, folder, limit_s=notify.LIMIT_S, **env):
    return notify.send([*target], DOCUMENT, {**os.environ, **env}, str(folder), limit_s)


def python(code):
    return [sys.executable, "-S", "-c", code]


def test_a_command_gets_the_summary_on_its_standard_input(tmp_path):
    assert send(python(SAVE + "; print(os.environ['A'])"), tmp_path, A="thanks") == "thanks"
    assert (tmp_path / "got").read_bytes() == DOCUMENT


def test_a_command_need_not_read_it(tmp_path):
    large = b"x" * (1 << 20)
    assert notify.send(python("pass"), large, dict(os.environ), str(tmp_path)) == "exit 0"


@pytest.mark.parametrize(
    ("target", "reason", "output"),
    [
        (python("print('no\\n mail'); raise SystemExit(7)"), "exit 7", "no mail"),
        (python("import os; os.kill(os.getpid(), 9)"), "killed by signal 9", ""),
        (["/no/program"], "cannot run /no/program: No such file or directory", ""),
        (["./a-file"], "cannot run ./a-file: Permission denied", ""),
    ],
)
def test_a_command_that_fails_says_why(tmp_path, target, reason, output):
    (tmp_path / "a-file").write_text("not executable")
    with pytest.raises(notify.NotSent) as failed:
        send(target, tmp_path)
    assert (failed.value.reason, failed.value.output) == (reason, output)


def test_only_the_end_of_a_long_output_is_kept(tmp_path):
    with pytest.raises(notify.NotSent) as failed:
        send(python("print('x' * 10_000_000, 'the end'); raise SystemExit(1)"), tmp_path)
    assert failed.value.output.endswith("x the end")
    assert len(failed.value.output) <= notify.OUTPUT_BYTES


def test_a_command_that_hangs_is_killed_with_its_children(tmp_path):
    code = (
        "import os, subprocess, sys, time; child = subprocess.Popen(['sleep', '3000']);"
        "print(os.getpid(), child.pid, flush=True); time.sleep(3000)"
    )
    with pytest.raises(notify.NotSent) as failed:
        send(python(code), tmp_path, limit_s=1.0)
    assert failed.value.reason == "killed after 1 s"
    for pid in failed.value.output.split():
        until(lambda pid=pid: not alive(int(pid)), f"the end of {pid}")


def test_a_process_that_a_command_leaves_behind_is_not_waited_for(tmp_path):
    code = "import subprocess; print(subprocess.Popen(['sleep', '3000']).pid, flush=True)"
    started_at = time.monotonic()
    pid = int(send(python(code), tmp_path))
    assert time.monotonic() - started_at < notify.LIMIT_S
    assert alive(pid)
    os.kill(pid, 9)


def test_a_url_gets_the_summary_as_json(tmp_path):
    with webhook() as server:
        answer = send([server.url + "/services/{TOKEN}/{OTHER}"], tmp_path, TOKEN="t0ken")
    assert answer == "HTTP 200"
    (post,) = server.posts
    assert post == ("/services/t0ken/{OTHER}", "application/json", json.loads(DOCUMENT))


def test_a_url_that_refuses_says_why_and_is_not_shown(tmp_path):
    with webhook() as server, pytest.raises(notify.NotSent) as failed:
        send([server.url + BROKEN + "/SECRET?key={TOKEN}"], tmp_path, TOKEN="t0ken")
    assert str(failed.value) == "HTTP 404 Not Found"
    with pytest.raises(notify.NotSent) as failed:
        send([server.url + "/SECRET"], tmp_path)  # it listens no more
    assert str(failed.value) == "Connection refused"
    with pytest.raises(notify.NotSent) as failed:
        send([server.url + "/{TOKEN}"], tmp_path, TOKEN="SEC RET")
    assert str(failed.value) == "not a valid URL, or no valid answer (InvalidURL)"


@pytest.mark.parametrize("code", [300, 301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(tmp_path, code):
    with webhook() as server, webhook() as foreign:
        for location in (foreign.url + "/?SECRET", server.url, "file:///etc/passwd", "//x"):
            server.location = location
            with pytest.raises(notify.NotSent, match=rf"^HTTP {code} .*not followed") as failed:
                send([f"{server.url}{REDIRECT}{code}"], tmp_path)
            assert "SECRET" not in str(failed.value)
    assert len(server.posts) == 4
    assert (server.gets, foreign.gets, foreign.posts) == ([], [], [])


def test_a_url_that_never_answers_is_given_up(tmp_path):
    with webhook() as server, pytest.raises(notify.NotSent, match=r"^no answer within 1 s$"):
        send([server.url + SLOW], tmp_path, limit_s=1.0)


SLOW_HOST = """
import os, sys, time
package, sys.argv[0], folder = sys.argv[1:]
sys.path.insert(0, package)
from tfdeploy.agent.machine import process
from tfdeploy.agent.reports import notify
from tfdeploy.shared import records
process.adopt_orphans(True)
launch = records.load(records.Launch, folder + "/launch.json")
notify.start_sending_slow(launch, folder, "a", "b is slow")
while not os.path.exists(folder + "/sends"):
    time.sleep(0.01)
print(process.end_all("p/r/worker:0", None, 5.0, os.getpid()))
"""
# Stands for the agent that sends.
SENDS = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[2])
(folder / "sends").touch()
while not (folder / "go").exists():
    time.sleep(0.01)
(folder / "sent").touch()
"""


def test_a_message_about_a_slow_host_is_sent_though_the_task_ends_meanwhile(tmp_path):
    agent = tmp_path / "agent.py"
    agent.write_text(SENDS)
    launch = make_launch(notify=Notification(on_slow=["mail"]))
    records.write(os.fspath(tmp_path / "launch.json"), records.to_json(launch))
    package = os.fspath(Path(__file__).parents[4])
    supervisor = start_python(SLOW_HOST, package, os.fspath(agent), os.fspath(tmp_path))
    end_processes([supervisor])
    assert supervisor.first_line == "[]"
    (tmp_path / "go").touch()
    until((tmp_path / "sent").exists, "the message")
