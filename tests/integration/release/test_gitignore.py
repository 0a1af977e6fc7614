"""A folder without a repository has the files that git would list, with any ignore files."""

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
from tfdeploy.release import snapshot

FILES = (
    "a.txt", "b.py", "-x", "#h", "!n", "[b]", "fo o", "dir/keep.txt", "dir/x.txt", "dir/sub/y.txt",
    "dir/sub/a.txt", "src/a", "src/b", "foo/bar/baz", "foo/bar/a.txt", "foo/x/y/bar", "foobar/a",
    "foo1/bar", "A1", "a-b", "a]b", "a*b", "a\\b", "b/a/b/a/b/a", "bx", "^a", "foo/ a", "1/2/b",
    "top/deep/z.py", "é.txt",
)  # fmt: skip
PATTERNS = st.sampled_from(
    [
        "*", "/*", "*.txt", "*.py", "a*", "?.py", "[ab].*", "[!a]*.txt", "dir", "dir/", "/dir/",
        "dir/*", "dir/**", "**/sub", "**/a.txt", "dir/**/a.txt", "sub/", "src/a", "/src", "foo/*",
        "foo/bar", "foo/bar/", "*/", "**/", "bar", "baz", "keep.txt", "/a.txt", "top/*", "top/deep",
        "x.txt", "é.txt",
    ]
).flatmap(lambda pattern: st.sampled_from([pattern, pattern, "!" + pattern]))  # fmt: skip


class Repository:
    """A folder with FILES, for git the tree of a real repository that is stored elsewhere."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp())
        self.git_dir = Path(tempfile.mkdtemp())
        subprocess.run(["git", "init", "-q", "--bare", self.git_dir], check=True)
        for name in FILES:
            put(self.folder, name)

    def differences(self, ignores):
        """Return ({files only git lists}, {files only tfdeploy lists}) with these ignore files."""
        for path, content in ignores.items():
            put(self.folder, path, content)
        try:
            by_git, by_tfdeploy = self._listed_by_git(), self._listed_by_tfdeploy()
        finally:
            for path in ignores:
                (self.folder / path).unlink()
        return by_git - by_tfdeploy, by_tfdeploy - by_git

    def _listed_by_git(self):
        repository = ["--git-dir", self.git_dir, "--work-tree", self.folder]
        listed = subprocess.run(
            ["git", *repository, "ls-files", "-co", "-z", "--exclude-standard"],
            check=True,
            capture_output=True,
            cwd=self.folder,
            env={**os.environ, "HOME": "/nowhere"},
        )
        return set(listed.stdout.decode().split("\0")) - {""}

    def _listed_by_tfdeploy(self):
        try:
            return set(snapshot.take(self.folder, ()).manifest)
        except PlanError:
            return set()


@pytest.fixture(scope="module")
def repository():
    test_repository = Repository()
    yield test_repository
    shutil.rmtree(test_repository.folder)
    shutil.rmtree(test_repository.git_dir)


NO_DIFFERENCES = (set(), set())


@pytest.mark.parametrize(
    "content",
    [
        "*.txt", "*.txt\n!keep.txt", "dir\n!dir/keep.txt", "dir/*\n!dir/keep.txt", "/a.txt", "dir/",
        "**/sub", "dir/**/a.txt", "foo/*\n!foo/bar", "/*\n!/src/\n/src/*\n!/src/a", "a.txt/",
        "\\#h\n\\!n", "\\[b\\]", "[b]", "fo o  ", "fo\\ o", "# a.txt", "   \n\n", " a.txt",
        "./a.txt", "a.txt\r\nb.py\r\n", "a[", "/", "d?r", "[!a]*.txt", "[a-c].txt", "*.[!p]*",
        "**\n!a.txt", "**/",
        "foo/**/baz", "sub/y.txt", "*\n!*.py", "-x", "é.txt", "***", "dir/**", "*\n!*/\n!*.py",
        "*\n!/src\n!/src/**", "dir/**\n!dir/keep.txt", "**/*\n!**/*.py\n!*/", "!\na.txt", "a.txt\\",
        "\ufeffa.txt", "a.txt\x0cb.py", "a.txt\u2028b.py",
    ],
)  # fmt: skip
def test_an_ignore_file_is_applied_as_by_git(repository, content):
    assert repository.differences({".gitignore": content}) == NO_DIFFERENCES


@pytest.mark.parametrize(
    "ignores",
    [
        {".gitignore": "*.txt", "dir/.gitignore": "!keep.txt"},
        {".gitignore": "*.txt", "dir/.gitignore": "!*.txt", "dir/sub/.gitignore": "/y.txt"},
        {".gitignore": "!dir/keep.txt", "dir/.gitignore": "*.txt"},
        {".gitignore": "dir/", "dir/.gitignore": "!*"},
        {"dir/.gitignore": "*"},
        {"dir/.gitignore": "*\n!.gitignore"},
        {"dir/.gitignore": "/sub/y.txt\ndir/x.txt"},
    ],
)
def test_nested_ignore_files_are_applied_as_by_git(repository, ignores):
    assert repository.differences(ignores) == NO_DIFFERENCES


def lines(most):
    return st.lists(PATTERNS, max_size=most).map("\n".join)


PARTS = st.sampled_from(
    [
        *(
            "a",
            "b",
            "foo",
            "bar",
            "txt",
            ".",
            "-",
            "1",
            "A",
            " ",
            "/",
            "/",
            "/",
            "*",
            "*",
            "**",
            "***",
        ),
        *(
            "**/",
            "/**/",
            "?",
            "[",
            "]",
            "!",
            "^",
            "[a-c]",
            "[!a]",
            "[^-a]",
            "[]a]",
            "[b-a]",
            "[a/b]",
        ),
        *(
            "[[:alpha:]]",
            "[[:upper:][:digit:]-]",
            "[[:x:]]",
            "[[:]",
            "[a",
            "\\*",
            "\\",
            "\\a",
            "[\\]]",
        ),
    ]
)


@given(parts=st.lists(PARTS, min_size=1, max_size=7), negated=st.booleans())
@example(parts=["foo", "**", "/", "bar"], negated=False)
@example(parts=["/", "foo", "**", "/", "x", "/", "**", "b"], negated=True)
@example(parts=["[b-a]", "x"], negated=False)
def test_any_pattern_is_applied_as_by_git(repository, parts, negated):
    pattern = "".join(parts)
    content = f"*\n!*/\n!{pattern}" if negated else pattern
    by_git, by_tfdeploy = repository.differences({".gitignore": content})
    assert by_git | by_tfdeploy <= {"é.txt"}  # "?" is a byte in git, and a character here


@given(root=lines(4), inner=lines(2))
@example(root="*.txt", inner="!a.txt")
def test_any_ignore_files_are_applied_as_by_git(repository, root, inner):
    assert repository.differences({".gitignore": root, "dir/.gitignore": inner}) == NO_DIFFERENCES
