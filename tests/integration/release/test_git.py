"""What git says about the source of a run, in real repositories."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tfdeploy.release import git


@pytest.fixture
def repository(tmp_path):
    """A repository with one commit on the branch main; a function that runs git in it."""
    folder = tmp_path / "source"
    folder.mkdir()

    def run(*words):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        argv = ["git", *identity, *words]
        return subprocess.check_output(argv, cwd=folder, text=True).strip()

    run("init", "-q", "-b", "main")
    (folder / "train.py").write_text("rate = 1\nsteps = 10\n")
    (folder / "lib").mkdir()
    (folder / "lib/model.py").write_text("layers = 2\n")
    run("add", ".")
    run("commit", "-qm", "first")
    return folder, run


PATHS = ("train.py", "lib/model.py")


def test_a_clean_tree_has_a_commit_and_a_branch(repository):
    folder, run = repository
    commit = run("rev-parse", "HEAD")
    assert git.describe(folder, PATHS) == {"commit": commit, "branch": "main", "diff": ""}
    run("checkout", "-q", "--detach")
    assert git.describe(folder, PATHS)["branch"] == ""


def test_what_is_not_committed_is_a_diff_of_the_files_of_the_release(repository):
    folder, _ = repository
    (folder / "train.py").write_text("rate = 2\nsteps = 10\n")
    (folder / "new.py").write_text("x = 1")
    (folder / "private.txt").write_text("not part of the release")
    (folder / "lib/model.py").unlink()
    diff = git.describe(folder, ("train.py", "new.py"))["diff"]
    assert "-rate = 1\n+rate = 2\n" in diff
    assert "--- a/new.py\n+++ b/new.py\n@@ -0,0 +1 @@\n+x = 1\n" in diff
    assert "--- a/lib/model.py\n+++ b/lib/model.py\n(deleted)\n" in diff
    assert "layers" not in diff
    assert "private" not in diff


def test_the_source_may_be_a_folder_of_the_repository(repository):
    folder, _ = repository
    (folder / "lib/model.py").write_text("layers = 3\n")
    assert "+layers = 3" in git.describe(folder / "lib", ("model.py",))["diff"]


def test_a_binary_or_large_file_is_only_named_and_a_large_diff_is_cut(repository):
    folder, _ = repository
    (folder / "data.bin").write_bytes(b"\0\1")
    assert git.describe(folder, ("data.bin",))["diff"] == "--- a/data.bin\n+++ b/data.bin\n"
    (folder / "train.py").write_text("x = 1\n" * 4000)
    diff = git.describe(folder, PATHS)["diff"]
    assert len(diff) < git.MAX_DIFF + 100
    assert diff.endswith("more characters\n")


def test_without_a_repository_or_a_commit_git_says_nothing(tmp_path):
    (tmp_path / "train.py").touch()
    assert git.describe(tmp_path, ("train.py",)) == {}
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    assert git.describe(tmp_path, ("train.py",)) == {}
    assert git.describe(tmp_path / "missing", ()) == {}


def test_without_git_nothing_is_said(repository, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    assert git.describe(repository[0], PATHS) == {}


def test_a_repository_can_not_start_programs(repository, tmp_path):
    folder, run = repository
    ran = tmp_path / "ran"
    for key in ("core.fsmonitor", "diff.external", "filter.f.clean", "filter.f.smudge",
                "diff.f.textconv", "core.pager", "core.sshCommand", "core.hooksPath"):  # fmt: skip
        run("config", key, f"touch {ran}; cat")
    (folder / ".gitattributes").write_text("*.py filter=f diff=f\n")
    (folder / "train.py").write_text("rate = 3\n")
    assert "+rate = 3" in git.describe(folder, PATHS)["diff"]
    assert not ran.exists()


def test_a_repository_can_not_have_missing_objects_fetched(repository, tmp_path, monkeypatch):
    folder, run = repository
    blob, ran = run("rev-parse", "HEAD:train.py"), tmp_path / "ran"
    (folder / ".git/objects" / blob[:2] / blob[2:]).unlink()
    for key, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::touch {ran}",
        "protocol.ext.allow": "always",
    }.items():
        run("config", key, value)
    older = tmp_path / "bin/git"  # it does not know this variable
    older.parent.mkdir()
    git_itself = shutil.which("git")
    older.write_text(f'#!/bin/sh\nunset GIT_NO_LAZY_FETCH\nexec {git_itself} "$@"\n')
    older.chmod(0o755)
    monkeypatch.setenv("PATH", f"{older.parent}:{os.environ['PATH']}")
    (folder / "train.py").write_text("rate = 3\n")
    assert git.describe(folder, PATHS) == {}
    assert not ran.exists()


def test_a_listing_without_an_end_is_not_read(repository, monkeypatch):
    folder, _ = repository
    monkeypatch.setattr(git, "MAX_LISTING", 100)
    assert git.describe(folder, PATHS) == {}


def test_a_file_of_many_lines_is_only_named(repository):
    folder, run = repository
    (folder / "labels.txt").write_text("".join(f"{n % 101}\n" for n in range(50_000)))
    run("add", ".")
    run("commit", "-qm", "labels")
    (folder / "labels.txt").write_text("".join(f"{n % 103}\n" for n in range(50_000)))
    assert git.describe(folder, ("labels.txt",))["diff"] == "--- a/labels.txt\n+++ b/labels.txt\n"


def test_a_name_that_is_no_text_can_be_printed(repository):
    folder, run = repository
    name = os.fsdecode(b"\xff.py")
    (folder / name).write_text("x = 1\n")
    run("add", ".")
    run("commit", "-qm", "odd")
    (folder / name).unlink()
    assert git.describe(folder, PATHS)["diff"].encode().startswith(b"--- a/?.py\n")


def test_a_pointer_to_a_file_elsewhere_is_no_difference(repository):
    folder, run = repository
    (folder / "model.h5").write_text("version https://git-lfs.github.com/spec/v1\noid x\n")
    run("add", "model.h5")
    run("commit", "-qm", "pointer")
    (folder / "model.h5").write_bytes(b"weights")
    assert git.describe(folder, ("model.h5",))["diff"] == ""
