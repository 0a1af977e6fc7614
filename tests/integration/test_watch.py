"""`tfdeploy watch`, over real SSH: in a terminal, without one, and while hosts come and go."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import termios
import threading
from contextlib import contextmanager, suppress

import pytest
from support import command_line, evidence, json_documents
from support.projects import environment
from support.waiting import until

ROWS, COLUMNS = 24, 80


class Terminal:
    """A command in a terminal of its own, and everything that it writes."""

    def __init__(self, project, *words):
        evidence.used(project)
        self._here, there = pty.openpty()
        fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        inherited = environment(project.folder)
        own = {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}
        self.process = command_line.start(
            *words, cwd=project.folder, env={**inherited, **own}, streams=(there,) * 3,
            own_session=True,
        )  # fmt: skip
        os.close(there)
        self._written = b""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        with suppress(OSError):
            while data := os.read(self._here, 1 << 16):
                self._written += data

    @property
    def text(self):
        return self._written.decode(errors="replace")

    def type(self, keys):
        os.write(self._here, keys.encode())

    def wait_for(self, text):
        until(lambda: text in self.text or self.process.poll() is not None, text)
        assert text in self.text, self.text

    def close(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._here)


@contextmanager
def terminal(project, *words):
    started = Terminal(project, *words)
    try:
        yield started
    finally:
        started.close()


@pytest.fixture
def project(by_ssh):
    return by_ssh.started("--hold", "--steps=3")


def test_the_view_shows_a_run_and_quitting_does_not_harm_it(project):
    before = project.processes()
    with terminal(project, "watch") as shown:
        shown.wait_for("3 tasks on 2 hosts: 3 READY")
        shown.wait_for("worker:0 step 3")
        shown.wait_for("model.ckpt-3")
        shown.type("1")
        shown.wait_for("ps:0 on one, log")
        shown.wait_for("ps:0 starts")
        shown.type("q")
        assert shown.process.wait() == 0
        until(lambda: "continues. Next: tfdeploy attach" in shown.text, "the last line")
        assert "\x1b[?1049l" in shown.text  # the terminal has its former screen again
    assert project.processes().keys() >= before.keys()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_view_and_not_the_run(project, number):
    before = project.processes()
    with terminal(project, "watch") as shown:
        shown.wait_for("3 READY")
        shown.process.send_signal(number)
        assert shown.process.wait() == 130
        until(lambda: "stopped following; run" in shown.text, "the last line")
    assert project.processes().keys() >= before.keys()


def test_the_view_of_a_run_that_ends_stays_until_q(project):
    with terminal(project, "watch") as shown:
        shown.wait_for("3 READY")
        project.ok("stop")
        shown.wait_for("stopped. Next: tfdeploy collect")
        assert shown.process.poll() is None
        shown.type("q")
        assert shown.process.wait() == 143


def test_without_a_terminal_a_run_is_watched_to_its_end(by_ssh):
    project = by_ssh.started("--gate", "--steps=3")
    with project.start_command("watch") as command:
        command.wait_for_output("READY     worker:1")
        (project.work("worker:1") / "go").touch()
        command.wait_for_output("SUCCEEDED worker:1")
        (project.work("worker:0") / "go").touch()
        assert command.process.wait() == 0
        assert "succeeded. Next: tfdeploy collect" in command.output.splitlines()[-1]
    assert not (project.run_folder / "checkpoints").exists()


def documents_of(command):
    """Return the documents of a command whose text for people is in the same output."""
    lines = command.output.splitlines(keepends=True)
    return [json.loads(line) for line in lines if line[0] == "{" and line[-1] == "\n"]


def is_measured(document):
    """Return whether all hosts and tasks were seen twice, and so have a use of the CPU."""
    return all(each["cpu"] is not None for each in (*document["hosts"], *document["tasks"]))


def test_json_lines_show_what_tasks_and_hosts_use(project):
    with project.start_command("watch", "--json") as command:
        found = until(lambda: next(filter(is_measured, documents_of(command)), None), "all of it")
        json_documents.validator("watch").validate(found)
        assert command.interrupt() == 130
    assert [task["state"] for task in found["tasks"]] == ["READY"] * 3
    assert all(task["memory_bytes"] > 0 and task["cpu"] >= 0 for task in found["tasks"])
    assert all(0 <= host["cpu"] <= 1 for host in found["hosts"])
    assert found["training"]["checkpoint"] == "model.ckpt-3"


def test_an_unknown_run_is_refused(project):
    done = project.tf("watch", "nothing")
    assert (done.returncode, done.stdout) == (2, "")
    assert 'there is no run "nothing"' in done.stderr


def test_watch_follows_a_run_that_another_command_starts_again(project):
    with terminal(project, "watch") as shown:
        shown.wait_for("3 READY")
        project.ok("stop")
        shown.wait_for("stopped. Next: tfdeploy collect")
        project.ok("resume")
        shown.wait_for("was started again; watching it")
        until(lambda: "3 READY" in shown.text.partition("watching it")[2], "the new tasks")
        shown.type("q")
        assert shown.process.wait() == 0
        until(lambda: "continues. Next: tfdeploy attach" in shown.text, "the last line")


def test_without_a_report_nothing_is_said_of_the_run(project):
    record = project.run_folder / "run.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "agent": "0" * 12}))
    done = project.tf("watch")
    assert done.returncode == 1
    assert "no host has reported how run" in done.stdout
    assert "continues" not in done.stdout
    assert "the agent that started this run is gone" in done.stderr


def test_metrics_have_the_tasks_and_the_host(world):
    project = world.started("--hold")
    lines = project.ok("metrics").splitlines()
    for task in ("ps:0", "worker:0", "worker:1"):
        assert any(f'task="{task}"' in line and 'state="READY"' in line for line in lines)
    assert sum(line.startswith("tfdeploy_host_up{") for line in lines) == len(project.hosts)
