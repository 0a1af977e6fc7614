"""Another user of the controller, who can write where the first user's umask or group allows it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest
from support.builders import NOBODY_UID
from support.projects import Project, environment, local_hosts

from tfdeploy.cli.debug_log import LogFile
from tfdeploy.config import inventory
from tfdeploy.errors import RunError
from tfdeploy.folders import user_folders
from tfdeploy.trust import signature, store

if TYPE_CHECKING:
    from pathlib import Path

HOSTS = 'project = "p"\ntraining.command = "train"\nsource.path = ".."\n[hosts.a]\nworkers = 1\n'
OPEN = ["sh", "-c", 'umask 000; exec "$@"', "sh", sys.executable, "-m", "tfdeploy"]


def reachable(top: Path) -> dict[str, str]:
    """Return what another user can read or write below a folder, without its name."""
    found = {}
    for path in sorted(top.iterdir()):
        mode = path.lstat().st_mode
        rights = "".join(letter for letter, bit in (("r", 4), ("w", 2)) if mode & bit)
        if rights and not stat.S_ISLNK(mode):
            found[str(path)] = rights
        if stat.S_ISDIR(mode) and mode & stat.S_IXOTH:
            found |= reachable(path)
    return found


def test_with_any_umask_no_other_user_can_write_or_read_what_commands_create(tmp_path):
    home, runtime = tmp_path / "home", tmp_path / "runtime"
    home.mkdir()
    runtime.mkdir()
    project = Project(tmp_path / "project", local_hosts(tmp_path / "hosts"))
    own = {str(path) for path in project.folder.iterdir()}
    env = {**environment(project.folder), "HOME": str(home), "XDG_RUNTIME_DIR": str(runtime)}
    env = {name: env[name] for name in env if name not in ("XDG_CONFIG_HOME", "XDG_STATE_HOME")}
    try:
        for words in (["trust"], ["run"], ["report"], ["prune", "--keep", "0", "--yes"]):
            done = subprocess.run(
                [*OPEN, *words], cwd=project.folder, env=env, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
    finally:
        project.end()
    assert any(home.rglob("key")) and any(home.rglob("*.log"))
    tops = (home, runtime, tmp_path / "hosts" / "here", project.folder)
    shown = {path: rights for top in tops for path, rights in reachable(top).items()}
    assert {path: rights for path, rights in shown.items() if path not in own} == {}


@pytest.fixture
def shared_group(tmp_path, monkeypatch):
    """The configuration of a user whose group is that of all users, and whose umask was 002."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    config = tmp_path / "home" / ".config"
    config.mkdir(parents=True)
    os.chown(config, -1, NOBODY_UID)
    yield config
    config.chmod(0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to a group")
def test_another_user_puts_no_folder_of_a_clone_in_the_place_of_the_configuration(
    shared_group, tmp_path
):
    """A clone has files that belong to the user who cloned it: also a key, and what is trusted."""
    (tmp_path / "project").mkdir()
    file = tmp_path / "project" / "hosts.toml"
    file.write_text(HOSTS)
    sensitive = inventory.load(file)
    store.remember(sensitive)
    signed = signature.sign("a record")
    assert store.untrusted(sensitive) == () and signature.is_signed(signed, "a record")
    shared_group.chmod(0o775)
    (shared_group / "tfdeploy").rename(tmp_path / "clone")
    (shared_group / "tfdeploy").symlink_to(tmp_path / "clone")
    assert store.untrusted(sensitive)
    assert not signature.is_signed(signed, "a record")
    assert signature.sign("a record") == ""
    with pytest.raises(RunError, match=f"{shared_group} belongs to .* has mode 0775") as refused:
        store.remember(sensitive)
    assert refused.value.hint.startswith(f"chmod go-w {shared_group}; or set XDG_CONFIG_HOME to ")


@pytest.mark.parametrize("variable", ["XDG_RUNTIME_DIR", "TMPDIR"])
def test_no_socket_is_in_a_folder_that_another_user_can_replace(tmp_path, monkeypatch, variable):
    """ssh asks nobody who listens on the socket of a master."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv(variable, str(tmp_path))
    assert user_folders.socket_folder() is not None
    tmp_path.chmod(0o777)
    assert user_folders.socket_folder() is None
    tmp_path.chmod(0o1777)
    assert user_folders.socket_folder() is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
@pytest.mark.parametrize("squat", ["file", "fifo", "link"])
def test_a_log_file_that_another_user_has_created_gets_nothing(tmp_path, squat):
    path = tmp_path / "run.log"
    if squat == "fifo":
        os.mkfifo(path)
    elif squat == "link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.touch()
    os.chown(path, NOBODY_UID, -1, follow_symlinks=False)
    with pytest.raises(OSError):
        LogFile(path)
    assert not (tmp_path / "elsewhere").exists()
