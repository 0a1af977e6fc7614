"""`exec` and `ssh`: a user's commands where a task runs, with OpenSSH underneath."""

from __future__ import annotations

import json
import os
import select
import signal
from pathlib import Path

import pytest
from support import command_line
from support.command_line import REAL
from support.ports import free_ports
from support.projects import environment
from support.terminal import fork_on_terminal
from support.waiting import until

NAME = "API_KEY"
SERVE = """
import http.server, sys
http.server.HTTPServer(("", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""

# A command without SSH does not use the transport, but starts on this machine in its own way.
BOTH = pytest.mark.parametrize(
    "lasting", ["ssh", pytest.param("local", marks=pytest.mark.slow)], indirect=True, scope="module"
)


@pytest.fixture(scope="module")
def held(lasting):
    """Return a project whose tasks run until the end of the module's tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(NAME, "planted")
        project = lasting.pushed("--hold", training={"secrets": [NAME]})
        project.ok("start")
    return project


def run_in(project, *words, stdin=""):
    env = environment(project.folder)
    return command_line.run(*words, cwd=project.folder, env=env, text_in=stdin)


def test_a_command_runs_in_the_directory_and_environment_of_its_task(held):
    shown = ["TFDEPLOY_RUN", "CUDA_VISIBLE_DEVICES", NAME]
    script = "pwd; " + "; ".join(f'echo "${name}"' for name in shown)
    lines = held.ok("exec", "worker:1", "--", "sh", "-c", script).splitlines()
    assert lines == [str(held.work("worker:1")), held.runs[-1], "-1", "planted"]


@BOTH
def test_streams_and_the_exit_code_are_those_of_the_command(held):
    script = "cat; echo problem >&2; exit 7"
    done = run_in(held, "exec", "worker:0", "--", "sh", "-c", script, stdin="a\nb")
    assert (done.returncode, done.stdout, done.stderr) == (7, "a\nb", "problem\n")


def test_every_word_arrives_as_it_was_typed(held):
    words = ["a b", "it's", '"', "$HOME", "*", "a\nb", "\\", "", "ü", "--json"]
    script = "import json, sys; print(json.dumps(sys.argv[1:]))"
    printed = held.ok("exec", "worker:0", "--", "python", "-c", script, *words)
    assert json.loads(printed) == words


def test_python_is_the_python_of_the_task(held):
    printed = held.ok("exec", "ps:0", "--", "python", "-c", "import sys; print(sys.executable)")
    assert printed.strip() == next(iter(held.hosts.values()))["python"]


def test_hooks_and_the_mark_of_the_training_are_left_out(held):
    names = held.ok("exec", "worker:0", "--", "sh", "-c", "env | cut -d= -f1").split()
    assert {"TFDEPLOY_TASK", "TFDEPLOY_SAVES", "TFDEPLOY_SAVE_ON_STOP"} & {*names} == set()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["nothing-of-this-name"], 127, "nothing-of-this-name: No such file or directory\n"),
        (["ls -l"], 127, "ls -l: No such file or directory; for a shell's words: -- sh -c '...'\n"),
        (["/"], 126, "/: Permission denied\n"),
    ],
)
def test_a_program_that_cannot_be_run_is_one_sentence(held, words, code, message):
    done = held.tf("exec", "worker:0", "--", *words)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", message)


def test_several_tasks_print_behind_their_names_and_failures_are_named(held):
    script = 'echo "$TFDEPLOY_RUN"; case $PWD in */worker-1/*) exit 3; esac'
    done = held.tf("exec", "ps", "worker:[0-1]", "--", "sh", "-c", script)
    host, last = next(iter(held.hosts)), list(held.hosts)[-1]
    tasks = {f"ps:0@{host}", f"worker:0@{last}", f"worker:1@{last}"}
    assert {*done.stdout.splitlines()} == {f"{task} | {held.runs[-1]}" for task in tasks}
    assert done.returncode == 1
    assert done.stderr == f"error: worker:1 on {last}: the command exited with 3\n"


def test_tasks_are_selected_by_host_and_by_name(held):
    last = list(held.hosts)[-1]
    printed = held.ok("exec", "--on", last, "--task", "worker", "--", "echo", "x")
    assert sorted(printed.splitlines()) == [f"worker:{i}@{last} | x" for i in range(2)]
    assert run_in(held, "exec", "--task", "ps:0", "--", "sh", stdin="exit 4").returncode == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["exec", "worker:0", "ls"], "expected -- before the command"),
        (["exec", "worker:0", "--"], "found no command after --"),
        (["exec", "--", "ls"], "found no task; expected TASK, --task or --on"),
        (["exec", "worker:7", "--", "ls"], "its tasks are ps:0, worker:0, worker:1"),
        (["exec", "--on", "gone", "--", "ls"], 'there is no host "gone"'),
        (["ssh", "worker"], "worker: found 2 tasks; expected one"),
        (["ssh", "worker:0", "--run", "none"], 'there is no run "none"'),
    ],
)
def test_a_mistyped_command_is_refused_and_runs_nothing(held, words, message):
    done = held.tf(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.replace("│", " ").split())


def test_a_run_that_has_ended_can_be_entered_and_a_stop_ends_no_command(local):
    project = local.project("--hold")
    project.ok("push")
    project.ok("start")
    command = project.start_command("exec", "worker:0", "--", "sh", "-c", "echo in; sleep 600")
    with command:
        command.wait_for_output("in\n")
        project.ok("stop")
        assert command.process.poll() is None
    assert project.ok("exec", "worker:0", "--", "ls", "train.py") == "train.py\n"
    run = project.runs[-1]
    project.ok("prune", "--keep", "0", "--yes")
    done = project.tf("exec", "worker:0", "--", "ls")
    assert done.returncode == 1
    assert f"run {run} was deleted from its hosts" in done.stderr


def test_a_command_ends_with_its_connection(by_ssh, held_by_ssh):
    script = 'echo "pid $$"; exec sleep 600'
    with held_by_ssh.start_command("exec", "worker:0", "--", "sh", "-c", script) as command:
        command.wait_for_output("pid ")
        pid = int(command.output.split()[1])
        os.kill(command.process.pid, signal.SIGTERM)
        until(lambda: not Path(f"/proc/{pid}").exists(), "the end of the command on its host")


def test_a_host_that_cannot_be_reached_is_one_sentence(by_ssh, held_by_ssh):
    project = held_by_ssh
    record = project.run_folder / "hosts.toml"
    text = record.read_text()
    (closed,) = free_ports(1)
    record.write_text(text.replace("[hosts.two]", f"[hosts.two]\nport = {closed}"))
    assert record.read_text() != text
    project.ok("trust", "--run", project.run_folder.name)
    try:
        for words in (["exec", "worker:0", "--", "ls"], ["ssh", "worker:0"]):
            done = project.tf(*words)
            assert (done.returncode, done.stdout) == (1, "")
            assert done.stderr.startswith("error: two: no SSH connection: ")
        done = project.tf("exec", "ps", "worker", "--", "echo", "x")
        assert (done.returncode, done.stdout) == (1, "ps:0@one | x\n")
        assert done.stderr.startswith("error: two: no SSH connection: ")
    finally:
        record.write_text(text)


@pytest.fixture
def held_by_ssh(by_ssh, held):
    """Return the running project of the module if it is reached by SSH, else start one."""
    return held if held.hosts.keys() == {"one", "two"} else by_ssh.started("--hold")


# A terminal


class Terminal:
    """A command line on a terminal of its own."""

    def __init__(self, project, *words):
        self.output = ""
        env = {**environment(project.folder), "TERM": "dumb", "SHELL": "/bin/sh"}
        self.pid, self._terminal = fork_on_terminal([*REAL, *words], project.folder, env)

    def type(self, text):
        os.write(self._terminal, text.encode())

    def wait_for(self, text):
        def is_printed():
            if select.select([self._terminal], [], [], 0.1)[0]:
                self.output += os.read(self._terminal, 4096).decode(errors="replace")
            return text in self.output

        until(is_printed, text)

    def exit_code(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@BOTH
def test_ssh_opens_a_shell_in_the_directory_of_its_task(held):
    terminal = Terminal(held, "ssh", "worker:1")
    terminal.wait_for(f"worker:1 on {list(held.hosts)[-1]}: ")
    terminal.type('echo "<$TFDEPLOY_RUN $PWD>"; tty\r')
    terminal.wait_for(f"<{held.runs[-1]} {held.work('worker:1')}>")
    terminal.wait_for("/dev/pts/")
    terminal.type("exit 5\r")
    assert terminal.exit_code() == 5


def test_ctrl_c_is_for_the_command_on_a_terminal(held):
    script = "trap 'echo caught; exit 9' INT; echo waiting; while :; do sleep 0.1; done"
    terminal = Terminal(held, "exec", "worker:0", "--", "sh", "-c", script)
    terminal.wait_for("waiting")
    terminal.type("\x03")
    terminal.wait_for("caught")
    assert terminal.exit_code() == 9
