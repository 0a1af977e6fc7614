"""What git ignores of a source tree, by all its rules: .gitignore files up to the top of the
repository, .git/info/exclude, core.excludesFile; and never a tracked file."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tfdeploy.errors import PlanError
from tfdeploy.formatting.humanize import escape_line, quote_path
from tfdeploy.release import git

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RULES = ("-t", "--cached", "--others", "--ignored", "--exclude-standard", "--directory")
NOT_IGNORED = 1  # the exit code of check-ignore
UNTRACKED = "? "  # what -t writes before a path; before one of the index, it is a letter
LIST_TIMEOUT_S = 60.0  # git reads all folders: on a slow disk, a push does it again for longer
# How git says that there is no repository, or only the remains of one.
NO_REPOSITORY = (
    *("not a git repository", "invalid gitfile format"),
    *("must be run in a work tree", "bare repository"),
)


class Ignored(NamedTuple):
    """Paths that git ignores, those of folders with a slash at their end; and `tracked` ones, with
    the folders around them, that it does not ignore whatever patterns match them."""

    paths: frozenset[str] = frozenset()
    tracked: frozenset[str] = frozenset()

    def has(self, path: str, is_folder: bool) -> bool:
        """Return whether git ignores a path."""
        return (f"{path}/" if is_folder else path) in self.paths


NOTHING = Ignored()


def by_git(root: Path, exclude: Sequence[str] = ()) -> Ignored | None:
    """Return what git ignores below `root`. None if git is not installed, outside of a repository,
    and in a folder that its repository ignores. `exclude` are patterns of what is left out anyway:
    git doesn't enter such folders, if it can. Raises PlanError if git fails."""
    # In another folder than the top, git takes them for patterns of the top.
    pruned = exclude if os.path.lexists(root / ".git") else ()
    rows = _list(root, *RULES, *(f"--exclude={pattern}" for pattern in pruned))
    if rows is None:
        return None
    paths = frozenset(row[len(UNTRACKED) :] for row in rows if row.startswith(UNTRACKED))
    tracked = (row[len(UNTRACKED) :] for row in rows if not row.startswith(UNTRACKED))
    return Ignored(paths, _with_folders("", tracked))


def by_nested(root: Path, folder: str) -> Ignored | None:
    """Return the same of a repository in the folder "a/b/" of a source tree; its paths start with
    that folder. `tracked` are all files of its index: the .gitignore files of the repository around
    it are not meant for them."""
    found, files = by_git(root / folder), _list(root / folder, "--cached")
    if found is None or files is None:
        return None
    paths = frozenset(folder + path for path in found.paths)
    return Ignored(paths, _with_folders(folder, files))


def without_git(root: Path) -> list[Path]:
    """Return the ignore files besides .gitignore, where they are by default, if git is not
    installed."""
    if shutil.which("git") or not (root / ".git").is_dir():
        return []
    home = Path(os.environ.get("HOME", "/"))
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    files = (settings / "git/ignore", root / ".git/info/exclude")
    return [file for file in files if file.is_file()]


def _list(root: Path, *words: str) -> list[str] | None:
    """Return what `git ls-files` lists; None if there is no repository, or it ignores `root`."""
    top = next((each for each in (root, *root.parents) if os.path.lexists(each / ".git")), None)
    if top is None or not shutil.which("git"):
        return None
    try:
        if top != root and _is_ignored(root):
            return None
        listed = git.run(root, "ls-files", "-z", *words, timeout_s=LIST_TIMEOUT_S)
    except (OSError, git.GitError) as error:
        if any(words in str(error) for words in NO_REPOSITORY):
            return None
        raise _refusal(root, top, str(error)) from None
    return listed.decode(errors="surrogateescape").split("\0")[:-1]


def _is_ignored(folder: Path) -> bool:
    """Return whether a repository ignores a folder, and so all that is in it."""
    try:
        git.run(folder, "check-ignore", "--quiet", ".")
    except git.GitError as error:
        if error.code != NOT_IGNORED:
            raise
        return False
    return True


def _with_folders(start: str, paths: Iterable[str]) -> frozenset[str]:
    """Return the paths, each after `start`, and the folders around them."""
    found: set[str] = set()
    for path in paths:
        each = start + path
        while each and each not in found:
            found.add(each)
            each = each.rpartition("/")[0]
    return frozenset(found)


def _refusal(root: Path, top: Path, error: str) -> PlanError:
    hint = "git status must succeed there; in folders that .gitignore lists, git reads nothing"
    if "ownership" in error:
        trust = f"git config --global --add safe.directory {quote_path(str(top))}"
        hint = f"if you trust its owner: {trust}"
    return PlanError(f"git can't say what it ignores in {root}: {escape_line(error)}", hint)
