"""A task's process exits and leaves others: its training in the background, or only helpers."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from support.builders import eventually, make_heartbeat_settings, make_policy
from support.ports import free_port
from support.releases import write_manifest

from integration.agent.supervised_task import SCRIPT, is_alive
from tfdeploy.agent import paths

ALONE = make_heartbeat_settings(tasks=["worker:0"], needed=[])
PYTHON = shlex.quote(sys.executable)
WAIT_FOR = """
import os, sys, time
def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.01)
"""
# Trains until the test lets it end, then exits with what the test has written.
TRAIN = (
    WAIT_FOR
    + """
print("trains", flush=True)
wait_for("end")
print("last line", flush=True)
sys.exit(int(open("end").read() or 0))
"""
)
FORK_TWICE = (
    WAIT_FOR
    + """
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
exec(open("train.py").read())
"""
)
# The same program, forked and left by os._exit: a worker of a pool, for example.
FORKED = (
    WAIT_FOR
    + """
if os.fork():
    os._exit(0)
time.sleep(600)
"""
)
TRACKED = """
import multiprocessing.resource_tracker, os
multiprocessing.resource_tracker.ensure_running()
os.dup(multiprocessing.resource_tracker._resource_tracker._fd)
if os.fork() == 0:  # holds the pipe of the tracker open, as a forgotten worker does
    os.setsid()
    os.execvp("sleep", ["sleep", "600"])
os._exit(0)
"""


# A program of a package, outside the task's directory, that gets a file with its settings.
PACKAGE = """
import os, sys, time
for word in sys.argv[1:]:
    while os.path.exists(word) and not os.path.exists("end"):
        time.sleep(0.01)
"""


def popen(**options):
    return f"import subprocess, sys; subprocess.Popen([sys.executable, 'train.py'], **{options})"


BACKGROUND = {
    "&": f"{PYTHON} train.py &",
    "redirected": f"{PYTHON} train.py > train.log 2>&1 &",
    "nohup": f"nohup {PYTHON} train.py > train.log 2>&1 &",
    "setsid": f"setsid {PYTHON} train.py &",
    "nohup sh -c": f"nohup sh -c 'cd .; {PYTHON} train.py' &",
    "subshell": f"(cd .; {PYTHON} train.py) &",
    "pipe": f"{PYTHON} train.py | tee train.log &",
    "module": f"{PYTHON} -m train &",
    "in two steps": f"(sleep 0.2; {PYTHON} train.py) &",
    "disown": f"{PYTHON} train.py & disown -a",
    "no environment": f"setsid env -i PATH=$PATH {PYTHON} train.py &",
}
PROGRAMS = {
    "Popen": popen(),
    "Popen in a session": popen(start_new_session=True),
    "a daemon": FORK_TWICE,
}
HELPERS = {
    "tail": "touch x.log; tail -f x.log &",
    "tee": "mkfifo pipe; tee x.log < pipe & exec 3> pipe; sleep 600 <&3 &",
    "another program": "setsid sleep 600 &",
    "nohup": "nohup sleep 600 > /dev/null 2>&1 &",
}


def in_background(supervise, script, code=TRAIN, **changes):
    """Start `bash run.sh`, or a program in Python if it has no name of one."""
    files = {"run.sh": script, "train.py": code}
    changes = {"port": None, "heartbeat": ALONE, "policy": make_policy(attempts=0), **changes}
    return supervise("", argv=["bash", "run.sh"], files=files, **changes)


def as_program(supervise, script, **changes):
    files = {"main.py": script, "train.py": TRAIN}
    changes = {"port": None, "heartbeat": ALONE, "policy": make_policy(attempts=0), **changes}
    return supervise("", argv=[sys.executable, "main.py"], files=files, **changes)


def with_release(supervise, root, script):
    """Start `sh run.sh`, with the files of a release in the task's directory."""
    folder = root / "p" / "releases" / "f00d"
    folder.mkdir(parents=True)
    (folder / "config.yml").write_text("lr: 0.1")
    write_manifest(folder)
    (root / "package.py").write_text(PACKAGE)
    files = {"run.sh": script.replace("PACKAGE", f"{PYTHON} {root}/package.py")}
    files.update({"config.yml": "lr: 0.1", "train.log": "step 1"})
    changes = {"port": None, "heartbeat": ALONE, "policy": make_policy(attempts=0)}
    return supervise("", argv=["sh", "run.sh"], files=files, **changes)


def follows(task):
    """Wait until the task follows what its process has left."""
    assert eventually(lambda: "following" in task.state.reason, 20), task.state
    return task.state


def let_end(task, code=0):
    file = Path(paths.work(task.task_dir), "new")
    file.write_text(str(code))
    file.rename(file.with_name("end"))


@pytest.mark.parametrize("way", BACKGROUND)
def test_a_training_that_a_script_leaves_in_the_background_is_followed(supervise, way):
    task = in_background(supervise, BACKGROUND[way])
    state = follows(task)
    assert state.state == "READY"
    assert is_alive(state.pid)
    assert state.reason.startswith("run.sh exited and left ")
    assert state.reason.endswith(f" (pid {state.pid}) running; following it")
    let_end(task)
    ended = task.wait_for_end()
    assert task.log.count("following it") == 1
    assert (ended.state, ended.exit) == ("SUCCEEDED", 0), ended
    output = Path(paths.work(task.task_dir), "train.log")
    assert "last line" in (output.read_text() if output.exists() else task.log)


@pytest.mark.parametrize("way", ["nohup", "subshell", "pipe"])
def test_the_exit_code_of_a_training_in_the_background_counts(supervise, way):
    task = in_background(supervise, BACKGROUND[way])
    follows(task)
    let_end(task, 3)
    ended = task.wait_for_end()
    assert (ended.state, ended.exit) == ("FAILED", 3), ended


@pytest.mark.parametrize("way", PROGRAMS)
def test_a_training_that_a_program_leaves_is_followed(supervise, way):
    task = as_program(supervise, PROGRAMS[way])
    assert is_alive(follows(task).pid)
    let_end(task, 3)
    ended = task.wait_for_end()
    assert (ended.state, ended.exit) == ("FAILED", 3), ended
    assert task.log.rstrip().endswith("last line")


@pytest.mark.slow
def test_a_loop_of_a_shell_ends_with_its_script(supervise):
    ended = in_background(supervise, "while true; do sleep 0.05; done &").wait_for_end()
    assert (ended.state, ended.exit) == ("SUCCEEDED", 0)


@pytest.mark.parametrize("helper", HELPERS)
def test_helpers_that_a_script_leaves_end_with_it(supervise, helper):
    ended = in_background(supervise, HELPERS[helper]).wait_for_end()
    assert (ended.state, ended.exit) == ("SUCCEEDED", 0)
    assert "following" not in ended.reason


def test_a_resource_tracker_that_a_program_leaves_ends_with_it(supervise):
    task = as_program(supervise, TRACKED)
    ended = task.wait_for_end()
    assert (ended.state, ended.reason) == ("SUCCEEDED", "exit 0")
    assert "following" not in task.log


@pytest.mark.slow
def test_a_forked_worker_that_a_program_leaves_ends_with_it_and_is_named(supervise):
    task = as_program(supervise, FORKED)
    ended = task.wait_for_end()
    assert (ended.state, ended.exit) == ("SUCCEEDED", 0)
    assert re.fullmatch(r"exit 0; ended python main\.py \(pid \d+\), left running", ended.reason)
    assert "following" not in task.log


@pytest.mark.slow
def test_tensorboard_ends_with_the_script_that_has_started_it(supervise):
    board, port = Path(sys.executable).parent / "tensorboard", free_port()
    connects = f"socket.create_connection(('localhost', {port}))"
    waits = f"""
import socket, time
from contextlib import suppress
while True:
    with suppress(OSError), {connects}:
        break
    time.sleep(0.1)
"""
    script = f"{PYTHON} {board} --logdir . --port {port} > x.log 2>&1 &\n{PYTHON} train.py"
    ended = in_background(supervise, script, code=waits).wait_for_end()
    assert (ended.state, ended.reason) == ("SUCCEEDED", "exit 0")


@pytest.mark.parametrize(
    ("program", "code"),
    [("sh -c '{}; exit 9'", 9), ("sh -c '{}; kill -SEGV $$'", -11), ("({}; exit 9)", 9)],
)
def test_a_program_that_fails_just_after_its_script_has_exited_is_a_failure(
    supervise, program, code
):
    """Whatever it was: nobody can know any more. The script becomes a program that does not wait
    for it, so it has surely ended."""
    becomes = "while grep -q sh /proc/$LEADER/comm; do :; done"
    ends = "import sys; file = '/proc/{}/stat'.format(sys.argv[1])\n"
    ends += "while ' Z ' not in open(file).read(): pass"
    left = program.format(becomes)
    script = f"export LEADER=$$; {left} & exec {PYTHON} -c {shlex.quote(ends)} $!"
    ended = in_background(supervise, script).wait_for_end()
    assert (ended.state, ended.exit) == ("FAILED", code), ended


@pytest.mark.parametrize(
    "script",
    [
        f"{PYTHON} train.py & no-such-program > gpu.log & exec sleep 0.3",
        f"no-such-program > gpu.log & {PYTHON} train.py & exec sleep 0.3",
        f"{PYTHON} train.py | grep WARN > w.log & exec sleep 0.3",
    ],
    ids=["after it", "before it", "filter"],
)
def test_a_helper_that_fails_beside_a_training_is_no_failure(supervise, script):
    task = in_background(supervise, script)
    assert "following it" in follows(task).reason
    let_end(task)
    ended = task.wait_for_end()
    assert (ended.state, ended.exit) == ("SUCCEEDED", 0), ended


def test_a_program_that_has_ended_is_not_said_to_run(supervise):
    task = in_background(supervise, "(exit 9) & exec sleep 0.3")
    ended = task.wait_for_end()
    assert (ended.state, ended.exit) == ("FAILED", 9), ended
    assert "running" not in task.log
    assert "), which ended at once]" in task.log


@pytest.mark.parametrize("word", ["config.yml", "--config=config.yml"])
def test_a_program_of_a_package_is_followed_if_it_gets_a_file_of_the_release(supervise, root, word):
    task = with_release(supervise, root, f"PACKAGE config.yml {word} &")
    assert is_alive(follows(task).pid)
    let_end(task)
    assert task.wait_for_end().state == "SUCCEEDED"


@pytest.mark.parametrize("helper", ["tail -f config.yml", "tee train.log"])
def test_a_helper_that_gets_a_file_ends_with_its_script(supervise, root, helper):
    task = with_release(supervise, root, f"mkfifo pipe; exec 3<> pipe; {helper} <&3 & sleep 0.3")
    ended = task.wait_for_end()
    assert (ended.state, ended.reason) == ("SUCCEEDED", "exit 0")
    assert f"ended {helper} (pid " in task.log


def test_whatever_is_ended_after_a_success_is_named(supervise, root):
    task = with_release(supervise, root, "for n in 1 2 3 4; do PACKAGE train.log & done; sleep 0.5")
    ended = task.wait_for_end()
    assert ended.state == "SUCCEEDED"
    assert ended.reason.startswith("exit 0; ended ")
    assert ended.reason.count("(pid ") == 3
    assert ended.reason.endswith(" and 1 more, left running")


def test_a_child_that_failed_while_its_program_ran_is_no_failure(supervise):
    program = "import subprocess, time; subprocess.Popen(['sh', '-c', 'exit 9']); time.sleep(0.2)"
    assert as_program(supervise, program).wait_for_end().reason == "exit 0"


@pytest.mark.parametrize("end", ["kill $!", "kill -9 $!", "kill -INT $!"])
def test_a_helper_that_its_script_kills_at_the_end_is_no_failure(supervise, end):
    script = f"sleep 600 & sleep 0.1; {end}"
    assert in_background(supervise, script).wait_for_end().state == "SUCCEEDED"


def test_what_a_failing_script_leaves_ends_with_it_and_is_named(supervise):
    task = in_background(supervise, f"{PYTHON} train.py & sleep 0.3; exit 4")
    ended = task.wait_for_end()
    assert (ended.state, ended.exit) == ("FAILED", 4)
    assert "train.py (pid " in task.log
    assert "), left running]" in task.log
    assert "last line" not in task.log


def test_a_training_that_was_killed_in_the_background_has_failed(supervise):
    task = in_background(supervise, f"{PYTHON} train.py &")
    os.kill(follows(task).pid, 9)
    ended = task.wait_for_end()
    assert (ended.state, ended.exit) == ("FAILED", -9)


def test_two_trainings_end_with_the_later_and_fail_with_the_one_that_failed(supervise):
    other = f"{PYTHON} -c 'import train' x &"
    task = in_background(supervise, f"{PYTHON} train.py &\n{other}")
    assert "following them" in follows(task).reason
    assert task.state.reason.count("(pid ") == 2
    os.kill(task.state.pid, 9)
    assert task.reaches("READY")
    let_end(task)
    assert task.wait_for_end().exit == -9


def test_what_a_followed_training_leaves_is_followed_too(supervise):
    first = popen(start_new_session=True)
    task = in_background(supervise, f"echo {shlex.quote(first)} > first.py; {PYTHON} first.py &")
    assert eventually(lambda: "train.py (pid" in task.state.reason, 20), task.state
    let_end(task)
    assert task.wait_for_end().state == "SUCCEEDED"


def test_a_followed_training_is_stopped(supervise):
    task = in_background(supervise, f"setsid {PYTHON} train.py &")
    pid = follows(task).pid
    task.stop()
    assert task.wait_for_end().state == "STOPPED"
    assert not is_alive(pid)


def test_a_followed_training_is_restarted_as_any_other(supervise):
    code = "attempt(); become_ready(); sys.exit(3)"
    policy = make_policy(attempts=2, delay_s=0.1, exits=[3])
    changes = {"port": free_port(), "policy": policy}
    task = in_background(supervise, f"{PYTHON} -S train.py &", SCRIPT + code, **changes)
    ended = task.wait_for_end()
    assert (ended.state, ended.exit, task.attempts) == ("FAILED", 3, 2)
    assert ended.reason == "exit 3, twice with no progress in between"


@pytest.mark.slow
def test_a_followed_server_is_ready_at_its_port_and_frozen_when_it_is_stopped(supervise):
    serves = SCRIPT + "serve()"
    frozen = make_policy(attempts=0, frozen_timeout_s=1.0)
    task = in_background(
        supervise, f"{PYTHON} -S train.py &", code=serves, port=free_port(), policy=frozen
    )
    assert task.reaches("READY")
    os.kill(follows(task).pid, 19)
    assert task.wait_for_end().reason.startswith("FROZEN")
