"""Completion in real shells."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.builders import run_json
from support.projects import environment
from support.terminal import fork_on_terminal

STARTUP = {
    "bash": (["--noprofile", "--rcfile", "rc", "-i"], "PS1='$ '\n"),
    "zsh": (["-d", "-i"], "autoload -U compinit\ncompinit -u -D\nPS1='$ '\n"),
}
PATIENCE_S = 60.0


class Shell:
    """An interactive shell on a terminal of its own."""

    def __init__(self, name: str, folder: Path) -> None:
        words, startup = STARTUP[name]
        startup += f'eval "$(tfdeploy completion {name})"\necho the shell is re""ady\n'
        for file in ("rc", ".zshrc"):
            (folder / file).write_text(startup)
        env = {**environment(folder), "ZDOTDIR": str(folder), "TERM": "dumb"}
        self.output = ""
        self.pid, self._terminal = fork_on_terminal([name, *words], folder, env)
        self.wait_for("the shell is ready")

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.output:
            assert time.monotonic() < deadline, self.output
            if select.select([self._terminal], [], [], 0.2)[0]:
                self.output += os.read(self._terminal, 4096).decode(errors="replace")

    def close(self) -> None:
        os.close(self._terminal)  # hangs up
        os.waitpid(self.pid, 0)


@pytest.fixture
def folder(tmp_path):
    hosts = '[hosts.store]\naddress = "h"\nps = 2\n[hosts.gpu]\naddress = "g"\nworkers = 1\n'
    training = '[training]\ncommand = "python train.py"\nrole = "flags"\n'
    (tmp_path / "hosts.toml").write_text(f'project = "p"\n{training}{hosts}')
    run = tmp_path / "runs" / "20260101-1"
    run.mkdir(parents=True)
    (run / "hosts.toml").write_text((tmp_path / "hosts.toml").read_text())
    (run / "run.json").write_text(json.dumps(run_json()))
    return tmp_path


@pytest.mark.parametrize("name", STARTUP)
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("logs ps:1", "logs ps:1"),
        ("logs worker:", "logs worker:0"),
        ("status --run ", "status --run 20260101-1"),
        ("push --on gpu,st", "push --on gpu,store"),
        ("exec ps:0 -- cat hos", "exec ps:0 -- cat hosts.toml"),
    ],
)
def test_tab_completes_a_word(folder, name, typed, completed):
    shell = Shell(name, folder)
    try:
        shell.type(f"tfdeploy {typed}\t")
        shell.wait_for(completed)
        # What was typed and completed becomes the words of printf: one word in each line.
        shell.type("\x01printf '<%s>' \r")
        shell.wait_for("".join(f"<{word}>" for word in ("tfdeploy", *completed.split())))
    finally:
        shell.close()


def test_fish_proposes_names_and_files(folder):
    def propose(line):
        command = f"{sys.executable} -m tfdeploy completion fish | source; complete -C '{line}'"
        env = environment(folder)
        done = subprocess.run(
            ["fish", "-c", command], cwd=folder, env=env, capture_output=True, text=True
        )
        return [each.partition("\t")[0] for each in done.stdout.splitlines()]

    assert propose("tfdeploy logs ") == ["ps:0", "ps:1", "worker:0", "ps", "worker"]
    assert propose("tfdeploy status --run ") == ["20260101-1"]
    assert propose("tfdeploy exec ps:0 -- cat hos") == ["hosts.toml"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_script_is_valid(shell):
    script = Path(sys.modules["tfdeploy"].__file__).parent / "cli" / "shells" / f"tfdeploy.{shell}"
    assert script.is_file()
    assert subprocess.run([shell, "-n", script]).returncode == 0
