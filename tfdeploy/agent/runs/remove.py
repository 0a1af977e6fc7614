"""The verb `remove`: delete runs, releases and environments, except those that are live or in use.

What is deleted is first renamed to a name with a leading dot: so nothing that is half deleted looks
like a run or a release, and the next removal deletes the rest.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from typing import Callable, Dict, Iterator, List, Optional, Tuple

from ...shared.protocol.runs import Kept, Removed
from .. import paths
from ..environments import marker
from ..machine import lock
from ..outputs.saves import NOISE
from ..refusal import Refusal
from ..releases import changes, manifest
from ..releases.staging import make_writable
from . import disk, run_record

STARTED_AGAIN = "it was started again since prune has listed its files"
MAX_NAME = 200  # characters; a file system allows 255, with prefix and suffix


def remove(
    project: str,
    runs: List[str],
    releases: List[str],
    environments: List[str],
    by: str = "",
    launches: Optional[Dict[str, str]] = None,
) -> Removed:
    """Remove these runs, releases and environments, and all leftovers of interrupted removals,
    pushes and builds. With environments, the cache of installers is emptied too. `by` is recorded.
    A run of `launches` stays if that is not its last launch any more.

    What can't be removed does not stop the rest. Raises Refusal, before anything is deleted, for a
    name that leads elsewhere.
    """
    _check_names(project, *runs, *releases, *environments)
    freed, kept = sum(_remove_tree(path)[0] for path in disk.leftovers(project)), []
    candidates = [
        *((name, paths.run(project, name), _why_run_is_needed) for name in runs),
        *((name, paths.release(project, name), _why_release_is_needed) for name in releases),
        *((n, paths.environment(project, n), _why_environment_is_needed) for n in environments),
    ]
    for name, path, why_needed in candidates:
        size, why = 0, why_needed(project, name)
        is_run = path == paths.run(project, name) and os.path.isdir(path)
        if is_run and (launches or {}).get(name, "") not in ("", disk.last_launch(project, name)):
            why = why or STARTED_AGAIN
        if not why:
            if is_run:
                run_record.add_removal(project, name, by)
            size, why = _remove_tree(path)
        freed += size
        if why:
            kept.append(Kept(name=name, why=why))
    freed += _remove_cache() if environments else 0
    _remove_unused_manifests(project)
    return Removed(removed_bytes=freed, kept=kept)


def _remove_cache() -> int:
    """Empty the cache, unless a build uses it now; return the bytes that this freed."""
    with marker.lock_taken(paths.cache_lock()) as is_unused:
        hidden, _ = _hide(paths.cache()) if is_unused else ("", "")
    return _delete_tree(hidden)[0] if hidden else 0


def _check_names(*names: str) -> None:
    for name in names:
        if not name or name.startswith(".") or "/" in name or "\0" in name:
            raise Refusal("{!r} is not the name of a run, a release or an environment".format(name))


def _why_run_is_needed(project: str, run: str) -> str:
    """Return why a run must stay, checked right before its removal; "" if it can be removed."""
    if disk.is_resuming(project, run):
        return "it is being resumed"
    for task, task_dir in disk.task_dirs(project, run).items():
        if lock.is_live(task_dir):
            return "its {} is live".format(task)
        if disk.has_left_processes(project, run, task):
            stop = "stop them with tfdeploy stop --run {}".format(run)
            return "processes of its {} still run: {}".format(task, stop)
    return ""


def _why_release_is_needed(project: str, release: str) -> str:
    """Return which run uses a release, or which file was written into it; "" if it can be
    removed."""
    user = _user(project, lambda task_dir: release in disk.releases_of(task_dir))
    return user or _written_into(project, release)


def _written_into(project: str, release: str) -> str:
    """Return that a program has written into a release, and so a task's result may be lost with it;
    "" if it has not."""
    folder = paths.release(project, release)
    if not manifest.read(project, release) and os.path.isdir(folder):
        words = "its list of files can't be read: move what was written into {} and delete the rest"
        return words.format(folder)
    written = [os.path.join(folder, name) for name in _written_files(project, release)]
    if len(written) < 2:
        return "".join(map("{} was written by a program: move or delete it".format, written))
    others = {2: "1 other file"}.get(len(written), "{} other files".format(len(written) - 1))
    words = "{} and {} of {} were written by a program: move or delete them"
    return words.format(written[0], others, folder)


def _written_files(project: str, release: str) -> List[str]:
    """Return the files that were added to a release, except by-products, or overwritten in it."""
    added = changes.added_files(project, release)
    results = [name for name in added if not any(map(NOISE.fullmatch, name.split("/")))]
    return results + changes.overwritten_files(project, release)


def _why_environment_is_needed(project: str, environment: str) -> str:
    """Return which run uses an environment, or that it is being built; "" if it can be removed."""
    with marker.lock_taken(paths.environment_lock(project, environment)) as is_free:
        if not is_free:
            return "it is being built"
    return _user(project, lambda task_dir: environment == disk.environment_of(task_dir))


def _user(project: str, uses: Callable[[str], bool]) -> str:
    """Return which run has a task that uses something, by the task's folder; also a run that is a
    link to elsewhere. "" if none has."""
    for run, task_dir in disk.launched(project):
        if uses(task_dir):
            return "run {} uses it".format(run)
        if not disk.releases_of(task_dir):
            return "run {} may use it: its launch.json can't be read".format(run)
    return ""


def _remove_unused_manifests(project: str) -> None:
    """Delete the manifests of releases that are not on this host any more."""
    for name in disk.visible_names(paths.manifests(project)):
        release, ending = os.path.splitext(name)
        if ending == ".json" and not os.path.lexists(paths.release(project, release)):
            with suppress(FileNotFoundError):  # another host, which shares the store, was faster
                os.remove(os.path.join(paths.manifests(project), name))


def _remove_tree(path: str) -> Tuple[int, str]:
    """Return the bytes that the removal freed, and why not everything was deleted."""
    hidden, why = _hide(path)
    if not hidden:
        return 0, why
    freed, why = _delete_tree(hidden)
    return freed, why and "not all of it could be deleted: {}".format(why)


def _hide(path: str) -> Tuple[str, str]:
    """Rename a folder to a hidden name. Return that, or "" and why it stays ("" if it is gone)."""
    folder, name = os.path.split(path)
    name = name if name.startswith(disk.REMOVING) else disk.REMOVING + name
    hidden = os.path.join(folder, "{}-{}".format(name[:MAX_NAME], secrets.token_hex(4)))
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            return "", "it is a link or a file, not a folder"
        os.rename(path, hidden)
    except FileNotFoundError:  # another removal was faster
        return "", ""
    except OSError as error:
        return "", str(error.strerror)
    return hidden, ""


def _delete_tree(path: str) -> Tuple[int, str]:
    """Delete a tree, except files that can't be deleted (busy, or held open over NFS).

    Return the bytes that were freed, and the first error.
    """
    freed, why = 0, ""
    make_writable(path)
    for delete, entry in _bottom_up(path):
        try:
            info = os.lstat(entry)
            delete(entry)
        except FileNotFoundError:
            continue
        except OSError as error:
            why = why or str(error.strerror)
            continue
        if delete is os.rmdir or info.st_nlink == 1:  # else it has another hard link
            freed += info.st_blocks * disk.BLOCK
    return freed, why


def _bottom_up(path: str) -> Iterator[Tuple[Callable[[str], None], str]]:
    """Yield how to delete each entry of a tree, a folder after its content; follow no links."""
    for folder, folders, names in os.walk(path, topdown=False):
        subfolders = [os.path.join(folder, name) for name in folders]
        files = [os.path.join(folder, name) for name in names]
        for entry in files + [subfolder for subfolder in subfolders if os.path.islink(subfolder)]:
            yield os.unlink, entry
        yield os.rmdir, folder
