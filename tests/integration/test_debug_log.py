"""What tfdeploy logs of its work on hosts, and that no secret is in it."""

from __future__ import annotations

import re
import secrets

WORDS = (("push",), ("status",), ("logs", "-n", "9"), ("stop",), ("collect",))


def test_verbose_shows_connections_requests_and_rsync(by_ssh):
    project = by_ssh.project(top={"keep_connections_s": 0})
    (project.folder / "large.bin").write_bytes(bytes(9 << 20))
    shown = project.tf("push", "-v").stderr
    name, address = re.escape(next(iter(project.hosts))), r"\S+@127\.0\.0\.1 port \d+"
    for pattern in (
        rf"{name}: Paramiko connected to {address} in \d\.\d+ s$",
        rf"{name}: \w+: \d+ bytes sent, \d+ received, \d+\.\d+ s$",
        rf"{name}: rsync -lts8 .*--rsh=.*ssh.* {name}:",
        rf"{name}: rsync: exit 0 after \d+\.\d+ s$",
        r"the command took \d+\.\d+ s$",
    ):
        assert re.search(rf"^\d\d:\d\d:\d\d\.\d{{3}} .*{pattern}", shown, re.M), pattern
    assert "paramiko" not in shown
    assert "paramiko.transport: " in project.tf("-vv", "push").stderr


def test_verbose_shows_what_the_connection_daemon_does(by_ssh):
    project = by_ssh.project()
    project.ok("push")
    shown = project.tf("push", "-v").stderr
    host = next(iter(project.hosts))
    assert re.search(rf"connection daemon: {host}: a waiting agent is used again$", shown, re.M)
    log = project.folder.parent / ".local/state/tfdeploy/push.log"
    assert shown.splitlines() == log.read_text().splitlines()


def test_no_secret_is_in_the_log(by_ssh, monkeypatch):
    secret, variable, word = (f"planted-{secrets.token_hex(16)}" for _ in range(3))
    monkeypatch.setenv("WANDB_API_KEY", secret)
    project = by_ssh.project(
        "--hold", training={"secrets": ["WANDB_API_KEY"]}, top={"keep_connections_s": 0}
    )
    url = f"URL=https://me:{variable}@host/"
    shown = project.tf("push", "-vv").stderr
    shown += project.tf("start", "-vv", "--env", url, "--", "--api-key", word).stderr
    for words in WORDS:
        done = project.tf(*words, "-vv")
        assert done.returncode == 0, done.stderr
        shown += done.stderr
    folder = project.folder.parent / ".local/state/tfdeploy"
    stored = {file.name: file.read_text() for file in folder.iterdir()}
    assert {*stored} == {f"{name}.log" for name in ("start", *(words[0] for words in WORDS))}
    assert "start: " in stored["start.log"]
    text = shown + "".join(stored.values())
    assert [each for each in (secret, variable, word) if each in text] == []
