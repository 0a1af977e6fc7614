"""What git says about the source of a run: its commit and branch, and what is not committed.

Only objects of the repository are read, and compared with the files. Commands that look at files
themselves, such as git diff, start programs that the configuration of somebody else's repository
names: filters, file system monitors, and tools that show differences.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import subprocess
from typing import TYPE_CHECKING

from tfdeploy.formatting.humanize import format_count

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

TIMEOUT_S = 10.0
MAX_CHANGES = 50  # files that are compared
MAX_FILE_BYTES = 1 << 18
MAX_DIFF = 10_000  # characters; each host stores it with the run's record
LFS = b"version https://git-lfs"  # stands for a file that git does not store
# Objects that a partial clone lacks are not fetched: that would start what its configuration says.
COMMAND = ("git", "-c", "protocol.allow=never", "--no-optional-locks")


def describe(root: Path, paths: Collection[str]) -> dict[str, str]:
    """Return `commit`, `branch` ("" if no branch is checked out), and `diff`, what of the files
    `paths` below `root` is not committed ("" if all is); {} without git, or without a commit."""
    try:
        head, branch = _git(root, "rev-parse", "HEAD", "--abbrev-ref", "HEAD").decode().split()
        listed = _git(root, "ls-tree", "-r", "-z", "HEAD").decode(errors="surrogateescape")
        rows = (row.partition("\t") for row in listed.split("\0") if row)
        blobs = {path: kind.split()[2] for kind, _, path in rows if " blob " in kind}
        diff = "".join(_diff(root, paths, blobs))
    except (OSError, ValueError, subprocess.SubprocessError):
        return {}
    more = len(diff) - MAX_DIFF
    text = f"{diff[:MAX_DIFF]}\n… {format_count(more, 'more character')}\n" if more > 0 else diff
    return {"commit": head, "branch": "" if branch == "HEAD" else branch, "diff": text}


def _git(root: Path, *words: str) -> bytes:
    environment = {"PATH": os.environ.get("PATH", ""), "HOME": os.environ.get("HOME", "")}
    done = subprocess.run(
        [*COMMAND, "-C", str(root), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=TIMEOUT_S,
        env={**environment, "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"},
    )
    return done.stdout


def _diff(root: Path, paths: Collection[str], blobs: dict[str, str]) -> Iterator[str]:
    """Yield the differences of files that are not as they were committed."""
    present = [path for path in paths if (root / path).is_file() and not (root / path).is_symlink()]
    gone = [path for path in blobs if not os.path.lexists(root / path)]
    changed = [path for path in present if not _is_committed(root / path, blobs.get(path, ""))]
    for path in sorted([*changed, *gone])[:MAX_CHANGES]:
        old = _git(root, "cat-file", "blob", blobs[path]) if path in blobs else b""
        new = b"" if path in gone else (root / path).read_bytes()
        if old.startswith(LFS):
            continue
        if b"\0" in old + new or max(len(old), len(new)) > MAX_FILE_BYTES:
            yield f"--- a/{path}\n+++ b/{path}\n"
            continue
        before, after = (each.decode(errors="replace").splitlines() for each in (old, new))
        lines = difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", lineterm="")
        yield from (f"{line}\n" for line in lines)


def _is_committed(file: Path, blob: str) -> bool:
    """Return whether a file is the blob with this id. Source: gitformat, object storage."""
    content = file.read_bytes() if blob else b""
    hashing = hashlib.sha256 if len(blob) == len(hashlib.sha256().hexdigest()) else hashlib.sha1
    return hashing(b"blob %d\0" % len(content) + content).hexdigest() == blob
