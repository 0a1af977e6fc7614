"""What git says about the source of a run: its commit and branch, and what is not committed.

Only objects of the repository are read, and compared with the files. Commands that look at files
themselves, such as git diff, start programs that the configuration of somebody else's repository
names: filters, file system monitors, and tools that show differences. Of these commands, only
ls-files and check-ignore may be run: they start no program but the monitor, which `run` disables.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import signal
import subprocess
import tempfile
import threading
from typing import TYPE_CHECKING

from tfdeploy.formatting.humanize import format_count, format_size

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

GIT_TIMEOUT_S = 10.0  # of a command that reads few objects
MAX_CHANGES = 50  # files that are compared
MAX_FILE_BYTES = 1 << 18
MAX_LINES = 5000  # of a file: difflib takes seconds for more, if many of them are equal
MAX_LISTING = 64 << 20  # bytes; half a million files
MAX_DIFF = 10_000  # characters; each host stores it with the run's record
LFS = b"version https://git-lfs"  # stands for a file that git does not store
MAX_ERROR = 500  # characters of what git says when it fails
# Empty, because git before 2.36 takes any other value for a program.
NO_MONITOR = ("-c", "core.fsmonitor=")
# Variables of git that the user sets. Others name a repository, for example in git's hooks.
OF_USER = ("GIT_CONFIG", "GIT_CEILING_DIRECTORIES", "GIT_DISCOVERY_ACROSS_FILESYSTEM")
# Objects that a partial clone lacks are not fetched: that would start what its configuration says.
# Before 2.45, git only knows the first of these; it counts more than any configuration.
NO_FETCH = {"GIT_ALLOW_PROTOCOL": "", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}


def describe(root: Path, paths: Collection[str]) -> dict[str, str]:
    """Return `commit`, `branch` ("" if no branch is checked out), and `diff`, what of the files
    `paths` below `root` is not committed ("" if all is); {} without git, or without a commit."""
    try:
        head, branch = run(root, "rev-parse", "HEAD", "--abbrev-ref", "HEAD").decode().split()
        listed = run(root, "ls-tree", "-r", "-z", "HEAD").decode(errors="surrogateescape")
        rows = (row.partition("\t") for row in listed.split("\0") if row)
        blobs = {path: kind.split()[2] for kind, _, path in rows if " blob " in kind}
        diff = "".join(_diff(root, paths, blobs)).encode(errors="replace").decode()
    except (OSError, ValueError):
        return {}
    more = len(diff) - MAX_DIFF
    text = f"{diff[:MAX_DIFF]}\n… {format_count(more, 'more character')}\n" if more > 0 else diff
    return {"commit": head, "branch": "" if branch == "HEAD" else branch, "diff": text}


class GitError(ValueError):
    """What git says about why it failed, and its exit `code`."""

    def __init__(self, words: str, code: int | None = None) -> None:
        super().__init__(words)
        self.code = code


def run(root: Path, *words: str, timeout_s: float = GIT_TIMEOUT_S) -> bytes:
    """Return what git prints in the folder `root`. Raises OSError, and GitError if it fails, prints
    more than MAX_LISTING bytes, or takes longer than `timeout_s`."""
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            ["git", "--no-optional-locks", *NO_MONITOR, "-C", str(root), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=_environment(),
        ) as process,
    ):
        timer = threading.Timer(timeout_s, process.kill)
        timer.start()
        try:
            printed = process.stdout.read(MAX_LISTING + 1) if process.stdout else b""
            if len(printed) > MAX_LISTING:
                process.kill()
            process.wait()
        finally:
            timer.cancel()
        errors.seek(0)
        said = errors.read(MAX_ERROR).decode(errors="replace")
    if len(printed) > MAX_LISTING:
        raise GitError(f"git {words[0]} lists more than {format_size(MAX_LISTING)}")
    if process.returncode == -signal.SIGKILL:
        raise GitError(f"git {words[0]} takes longer than {timeout_s:g} s")
    if process.returncode:
        reason = said.rpartition("fatal: ")[2].partition("\n")[0]
        raise GitError(reason, process.returncode)
    return printed


def _environment() -> dict[str, str]:
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith(OF_USER)
    }
    return {**own, **NO_FETCH, "LC_ALL": "C"}


def _diff(root: Path, paths: Collection[str], blobs: dict[str, str]) -> Iterator[str]:
    """Yield the differences of files that are not as they were committed. Of those that are gone,
    only the names: they were no part of the release, and git has their content."""
    present = [path for path in paths if (root / path).is_file() and not (root / path).is_symlink()]
    gone = [path for path in blobs if not os.path.lexists(root / path)]
    changed = [path for path in present if not _is_committed(root / path, blobs.get(path, ""))]
    for path in sorted([*changed, *gone])[:MAX_CHANGES]:
        if not os.path.lexists(root / path):
            yield f"--- a/{path}\n+++ b/{path}\n(deleted)\n"
            continue
        old = run(root, "cat-file", "blob", blobs[path]) if path in blobs else b""
        if old.startswith(LFS):
            continue
        with (root / path).open("rb") as file:
            new = file.read(MAX_FILE_BYTES + 1)
        before, after = (each.decode(errors="replace").splitlines() for each in (old, new))
        size, lines = max(len(old), len(new)), max(len(before), len(after))
        if size > MAX_FILE_BYTES or lines > MAX_LINES or b"\0" in old + new:
            yield f"--- a/{path}\n+++ b/{path}\n"
            continue
        found = difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", lineterm="")
        yield from (f"{line}\n" for line in found)


def _is_committed(file: Path, blob: str) -> bool:
    """Return whether a file is the blob with this id. Source: gitformat, object storage."""
    if not blob:
        return False
    kind = "sha256" if len(blob) == len(hashlib.sha256().hexdigest()) else "sha1"
    digest = hashlib.new(kind, b"blob %d\0" % file.stat().st_size)
    with file.open("rb") as content:
        return hashlib.file_digest(content, lambda: digest).hexdigest() == blob
