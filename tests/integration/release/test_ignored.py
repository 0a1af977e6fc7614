"""A release has the files that git shows, in repositories with all that can make git ignore one."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.builders import put

from tfdeploy.errors import PlanError
from tfdeploy.release import git, snapshot

FILES = (
    "train.py", "notes.txt", "secret.env", "lib/a.py", "lib/b.csv", "lib/deep/c.csv",
    "lib/deep/d.txt", "data/e.csv", "data/keep.txt", "data/deep/f.py",
)  # fmt: skip
NESTED = "vendor/tool/"
NESTED_FILES = ("tool.py", "tool.csv", "secret.env", "build/g.txt")
PATTERNS = st.lists(
    st.sampled_from(
        [
            *("*", "*.csv", "!*.csv", "*.txt", "*.env", "!keep.txt", "/data/", "data/*", "deep/"),
            *("!deep/", "lib", "/lib/b.csv", "**/d.txt", "!/lib", "build/", "!*/", "vendor/", "/*"),
        ]
    ),
    max_size=3,
).map("\n".join)


class Repository:
    """A folder with FILES in a new repository, a user with a configuration, and `source`, which is
    the repository or a folder of it."""

    def __init__(self, base, source=""):
        self.base = base.resolve()
        self.home, self.top = self.base / "home", self.base / "top"
        self.source = self.top / source
        self.home.mkdir()
        self.source.mkdir(parents=True)
        for path in FILES:
            put(self.source, path)
        self.git("init", "-q", self.top)

    def git(self, *words, folder=None):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        command = ["git", *identity, *words]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
        environment = {**kept, "HOME": str(self.home)}
        done = subprocess.run(
            command, check=True, capture_output=True, cwd=folder or self.top, env=environment
        )
        return done.stdout.decode()

    def shown(self, folder=""):
        """Return the files that git shows below the source, or a nested repository in it."""
        words = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
        listed = self.git(*words, folder=self.source / folder).split("\0")[:-1]
        return {folder + path for path in listed if not (self.source / folder / path).is_dir()}

    def add_nested(self):
        """Create a repository in the source's folder NESTED."""
        for path in NESTED_FILES:
            put(self.source / NESTED, path)
        self.git("init", "-q", self.source / NESTED)


def pushed(folder):
    try:
        return set(snapshot.take(folder).manifest)
    except PlanError as error:
        assert error.message.endswith("has no file to push")
        return set()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A function that makes the only repository of a test."""

    def make(source=""):
        made = Repository(tmp_path, source)
        monkeypatch.setenv("HOME", str(made.home))
        monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
        return made

    return make


# Each rule


def test_files_of_info_exclude_are_not_pushed(repository):
    made = repository()
    put(made.top, ".git/info/exclude", "secret.env\n/data/\n")
    assert pushed(made.source) == made.shown()
    assert not {"secret.env", "data/e.csv"} & pushed(made.source)


@pytest.mark.parametrize(
    ("settings", "file"),
    [
        (".gitconfig", "[core]\nexcludesFile = ~/rules\n"),
        (".gitconfig", '[include]\npath = more\n[user]\nname = "a"\n'),
        (".config/git/config", "[core]\nexcludesFile = ~/rules\n"),
    ],
)
def test_files_of_the_users_excludes_file_are_not_pushed(repository, settings, file):
    made = repository()
    put(made.home, settings, file)
    put(made.home, "more", "[core]\nexcludesFile = ~/rules\n")
    put(made.home, "rules", "secret.env")
    assert pushed(made.source) == made.shown()
    assert "secret.env" not in pushed(made.source)


def test_the_users_ignore_file_needs_no_setting(repository, monkeypatch):
    made = repository()
    put(made.home, ".config/git/ignore", "secret.env")
    assert "secret.env" not in pushed(made.source)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(made.home / "xdg"))
    put(made.home, "xdg/git/ignore", "*.csv")
    assert "secret.env" in pushed(made.source)
    assert "data/e.csv" not in pushed(made.source)


def test_the_repository_may_set_the_excludes_file(repository):
    made = repository()
    made.git("config", "core.excludesFile", str(made.base / "own"))
    put(made.base, "own", "secret.env")
    assert pushed(made.source) == made.shown()
    assert "secret.env" not in pushed(made.source)


def test_a_tracked_file_is_pushed_although_a_pattern_matches_it(repository):
    made = repository()
    put(made.top, ".gitignore", "*.csv\ndata/\n*.env")
    made.git("add", "-f", "lib/b.csv", "data/keep.txt")
    made.git("update-index", "--skip-worktree", "data/keep.txt")
    assert pushed(made.source) == made.shown()
    assert {"lib/b.csv", "data/keep.txt"} < pushed(made.source)
    assert not {"data/e.csv", "lib/deep/c.csv", "secret.env"} & pushed(made.source)


def test_ignore_files_above_the_source_count(repository):
    made = repository(source="projects/digits")
    put(made.top, ".gitignore", "*.env")
    put(made.top / "projects", ".gitignore", "/digits/data/")
    assert pushed(made.source) == made.shown()
    assert not {"secret.env", "data/e.csv"} & pushed(made.source)


def test_a_warning_of_git_is_no_failure(repository):
    made = repository(source="projects/digits")
    put(made.top, "rules", "*.env")
    (made.top / ".gitignore").symlink_to("rules")  # git warns that it reads no link
    assert pushed(made.source) == made.shown() == set(FILES)


@pytest.mark.parametrize("pattern", ["*", "/projects/", "/*", "digits"])
def test_a_source_that_its_repository_ignores_is_pushed(repository, pattern):
    """A home may be a repository that ignores all except settings."""
    made = repository(source="projects/digits")
    put(made.top, ".gitignore", pattern)
    put(made.source, ".gitignore", "*.env")
    assert pushed(made.source) == {".gitignore", *FILES} - {"secret.env"}


def test_a_worktree_has_the_rules_of_its_repository(repository):
    made = repository()
    made.git("add", ".")
    made.git("commit", "-qm", "first")
    put(made.top, ".git/info/exclude", "*.log")
    made.git("worktree", "add", "-q", made.base / "second")
    put(made.base / "second", "a.log")
    assert pushed(made.base / "second") == set(FILES)


def test_the_case_of_names_counts_as_in_git(repository):
    made = repository()
    put(made.top, ".git/info/exclude", "SECRET.env")
    assert "secret.env" in pushed(made.source)
    made.git("config", "core.ignoreCase", "true")
    assert "secret.env" not in pushed(made.source)


def test_no_pattern_includes_files_of_git(repository):
    made = repository()
    put(made.top, ".gitignore", "!.git\n!.git/config\n")
    put(made.source, "lib/.git", "gitdir: /nowhere")
    assert pushed(made.source) == {".gitignore", *FILES}


# Repositories in a repository


def test_a_nested_repository_has_rules_of_its_own(repository):
    made = repository()
    made.add_nested()
    put(made.source / NESTED, ".git/info/exclude", "build/")
    assert pushed(made.source) == made.shown() | made.shown(NESTED)
    assert f"{NESTED}build/g.txt" not in pushed(made.source)


def test_the_outer_ignore_files_apply_to_untracked_files_of_a_nested_repository(repository):
    """As `git check-ignore` says, although the nested repository shows them."""
    made = repository()
    made.add_nested()
    put(made.top, ".gitignore", "*.env\n*.csv")
    made.git("add", "tool.csv", folder=made.source / NESTED)
    assert made.git("check-ignore", f"{NESTED}secret.env")
    assert f"{NESTED}secret.env" not in pushed(made.source)
    assert f"{NESTED}tool.csv" in pushed(made.source)


def test_a_submodule_has_rules_of_its_own(repository):
    made = repository()
    made.add_nested()
    made.git("add", ".", folder=made.source / NESTED)
    made.git("commit", "-qm", "first", folder=made.source / NESTED)
    made.git("add", NESTED.rstrip("/"))
    put(made.top, ".gitignore", "*.csv\nvendor/\n")
    put(made.source / NESTED, ".gitignore", "*.log")
    put(made.source / NESTED, "a.log")
    assert {path for path in pushed(made.source) if path.startswith(NESTED)} == {
        f"{NESTED}{path}" for path in (*NESTED_FILES, ".gitignore")
    }


@pytest.mark.parametrize("content", ["", "gitdir: /nowhere", "gitdir: ../../.git/modules/tool"])
def test_the_remains_of_a_submodule_are_a_folder(repository, content):
    made = repository()
    put(made.top, ".git/info/exclude", "*.env")
    put(made.source / NESTED, ".git", content)
    put(made.source / NESTED, "tool.py")
    put(made.source / NESTED, "secret.env")
    assert pushed(made.source) == {*FILES, f"{NESTED}tool.py"} - {"secret.env"}


@pytest.mark.parametrize("source", ["", "projects/digits"])
def test_a_submodule_that_a_clone_did_not_fetch_is_known(repository, source):
    made = repository(source)
    made.add_nested()
    made.git("add", ".", folder=made.source / NESTED)
    made.git("commit", "-qm", "first", folder=made.source / NESTED)
    allowed = ("-c", "protocol.file.allow=always")
    path = str(made.source.relative_to(made.top) / "lib/tool")
    made.git(*allowed, "submodule", "--quiet", "add", str(made.source / NESTED), path)
    made.git("add", "-A", ":!*vendor*")
    made.git("commit", "-qm", "second")
    made.git("clone", "-q", str(made.top), str(made.base / "clone"))
    clone = made.base / "clone" / source
    assert list(snapshot.take(clone).submodules) == ["lib/tool"]
    made.git(*allowed, "submodule", "--quiet", "update", "--init", folder=clone)
    assert list(snapshot.take(clone).submodules) == []


# What git can't say


def test_without_git_its_ignore_files_are_read_where_they_are_by_default(repository, monkeypatch):
    made = repository()
    put(made.top, ".git/info/exclude", "secret.env")
    put(made.home, ".config/git/ignore", "*.csv")
    put(made.top, ".gitignore", "/data/\n!/lib/b.csv")
    monkeypatch.setenv("PATH", "/nowhere")
    left = {".gitignore", "train.py", "notes.txt", "lib/a.py", "lib/b.csv", "lib/deep/d.txt"}
    assert pushed(made.source) == left


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to another user")
def test_a_repository_of_another_user_is_refused_until_git_trusts_it(repository):
    made = repository()
    put(made.top, ".git/info/exclude", "*.env")
    for path in (made.top, made.top / ".git"):
        os.chown(path, 12345, -1)
    with pytest.raises(PlanError) as refused:
        snapshot.take(made.source)
    assert refused.value.message.startswith(f"git can't say what it ignores in {made.top}: ")
    assert "dubious ownership" in refused.value.message
    command = refused.value.hint.partition(": ")[2]
    assert command == f"git config --global --add safe.directory {made.top}"
    made.git(*command.split()[1:])
    assert pushed(made.source) == set(FILES) - {"secret.env"}


def test_a_damaged_repository_is_refused(repository):
    made = repository()
    put(made.top, ".git/index", "not an index, but long enough to be read as one")
    with pytest.raises(PlanError) as refused:
        snapshot.take(made.source)
    message = f"git can't say what it ignores in {made.top}: index file corrupt"
    assert refused.value.message == message
    assert refused.value.hint.startswith("git status must succeed there")


def test_variables_of_a_git_hook_name_no_other_repository(repository, monkeypatch, tmp_path):
    made = repository()
    put(made.top, ".git/info/exclude", "secret.env")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "other/index"))
    assert pushed(made.source) == set(FILES) - {"secret.env"}


def test_git_does_not_enter_a_folder_that_exclude_lists(repository):
    """Data in the source folder may be millions of files."""
    made = repository()
    put(made.top, ".gitignore", "*.env")
    os.mkfifo(made.source / "data/.gitignore")  # git would wait for what it has
    found = snapshot.take(made.source, ("!a.ipynb", "/data/"))
    shown = {path for path in FILES if not path.startswith("data/")} - {"secret.env"}
    assert set(found.manifest) == {".gitignore", *shown}


# A repository of somebody else


@pytest.mark.parametrize(
    ("source", "folder"), [("", ""), ("", "vendor/tool"), ("projects/digits", "../..")]
)
def test_a_push_starts_no_program_of_a_repository(repository, source, folder):
    made = repository(source)
    made.add_nested()
    ran, evil, clone = made.base / "ran", made.base / "evil.sh", made.source / folder
    evil.write_text(f'#!/bin/sh\necho "$@" >> {ran}\n')
    evil.chmod(0o755)
    put(clone, ".gitattributes", "* filter=evil diff=evil merge=evil\n")
    put(clone, "tracked.py")
    made.git("add", "tracked.py", ".gitattributes", folder=clone)
    made.git("commit", "-qm", "first", folder=clone)
    keys = (
        *("core.fsmonitor", "core.hooksPath", "core.pager", "core.editor", "core.askPass"),
        *("core.sshCommand", "core.gitProxy", "core.alternateRefsCommand", "pager.ls-files"),
        *("filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "diff.evil.textconv"),
        *("diff.external", "diff.evil.command", "gpg.program", "credential.helper"),
        *("alias.ls-files", "uploadpack.packObjectsHook", "sequence.editor", "trace2.eventTarget"),
    )
    for key in keys:
        made.git("config", key, str(evil), folder=clone)
    made.git("config", "alias.check-ignore", f"!{evil}", folder=clone)
    for hook in ("post-index-change", "fsmonitor-watchman", "post-checkout", "pre-auto-gc"):
        shutil.copy(evil, clone / ".git/hooks" / hook)
    made.git("ls-files", "--others", folder=clone)
    assert ran.exists()  # so that the next lines prove something
    ran.unlink()
    found = snapshot.take(made.source)
    git.describe(made.source, found.manifest)
    assert not ran.exists()


def test_a_path_in_the_index_that_leads_out_of_the_source_is_not_pushed(repository):
    made = repository()
    put(made.base, "private.txt")
    (made.source / "lib/deep").rename(made.base / "deep")
    (made.source / "lib/deep").mkdir()
    put(made.source, "lib/deep/c.csv")
    made.git("add", "-f", "lib/deep/c.csv")
    shutil.rmtree(made.source / "lib/deep")
    (made.source / "lib/deep").symlink_to("../lib")
    assert "lib/deep/c.csv" not in pushed(made.source)


# Generated repositories


@pytest.mark.slow
@given(
    own=PATTERNS,
    inner=PATTERNS,
    info=PATTERNS,
    user=PATTERNS,
    above=PATTERNS,
    tracked=st.lists(st.sampled_from(FILES), max_size=3),
)
@example(own="", inner="", info="*", user="", above="", tracked=["data/deep/f.py"])
@example(own="!*.csv", inner="", info="*.csv", user="*.txt", above="*.env", tracked=[])
@pytest.mark.parametrize("source", ["", "projects/digits"])
def test_a_release_has_the_files_that_git_shows(source, own, inner, info, user, above, tracked):
    base = Path(tempfile.mkdtemp())
    try:
        made = Repository(base, source)
        made.add_nested()
        put(made.top, ".gitignore", above)
        put(made.source, ".gitignore", own)
        put(made.source, "lib/.gitignore", inner)
        put(made.top, ".git/info/exclude", info)
        put(made.home, ".config/git/ignore", user)
        if tracked:
            made.git("add", "-f", *tracked, folder=made.source)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HOME", str(made.home))
            patch.delenv("XDG_CONFIG_HOME", raising=False)
            found = {path for path in pushed(made.source) if not path.startswith(NESTED)}
        ignored = subprocess.run(
            ["git", "check-ignore", "-q", "."], check=False, cwd=made.source,
            env={**os.environ, "HOME": str(made.home), "XDG_CONFIG_HOME": ""},
        )  # fmt: skip
        if not source or ignored.returncode:
            assert found == made.shown()
    finally:
        shutil.rmtree(base)
