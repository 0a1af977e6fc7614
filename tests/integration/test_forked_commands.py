"""A command that tests fork prints and exits as one that a new interpreter runs."""

from __future__ import annotations

import subprocess

from support import command_line
from support.builders import hosts_toml
from support.projects import environment

HOSTS = '[hosts.here]\ntransport = "local"\nworkers = 2'
COMMANDS = (["plan"], ["plan", "--json"], ["nonsense"], ["push", "--nonsense"], ["--version"])


def test_a_fork_prints_and_exits_as_a_new_interpreter(tmp_path):
    (tmp_path / "hosts.toml").write_text(hosts_toml(HOSTS))
    (tmp_path / "train.py").write_text("")
    options = {"cwd": tmp_path, "env": environment(tmp_path)}
    for words in COMMANDS:
        forked = command_line.run(*words, **options)
        real = subprocess.run(
            [*command_line.REAL, *words], **options,
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip
        found = [(done.returncode, done.stdout, done.stderr) for done in (forked, real)]
        assert found[0] == found[1]
