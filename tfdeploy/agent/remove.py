"""The verb `remove`: runs and releases go from this host, but never what is live or in use.

What goes is renamed first, to a name with a leading dot: what is half gone never looks like a run
or a release, and the next removal goes on with it.
"""

from __future__ import annotations

import os
import secrets
import stat

from . import TYPE_CHECKING, disk, paths, process, records
from .incoming import unseal
from .refusal import Refusal

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Tuple

LONG = 200  # letters; a name has room for 255


def remove(project: str, runs: List[str], releases: List[str]) -> Dict[str, Any]:
    """Remove these runs and releases, and what was left half removed or half pushed.

    Answers `{removed_bytes, kept: [{name, why}]}`: whatever stays is named, and stops nothing else.
    Raises Refusal, before anything is touched, for a name that leads elsewhere.
    """
    _check(project, *runs, *releases)
    freed, kept = sum(_take_away(path)[0] for path in disk.leftovers(project)), []
    asked: List[Tuple[str, str, Callable[[str, str], str]]] = []
    asked += [(name, paths.run(project, name), _run_stays) for name in runs]
    asked += [(name, paths.release(project, name), _release_stays) for name in releases]
    for name, path, stays in asked:
        size, why = 0, stays(project, name)
        if not why:
            size, why = _take_away(path)
        freed += size
        if why:
            kept.append({"name": name, "why": why})
    _forget(project)
    return {"removed_bytes": freed, "kept": kept}


def weigh(project: str, runs: List[str], releases: List[str]) -> Dict[str, Any]:
    """What `remove` would free, as `{bytes}`, if nothing of it stays."""
    _check(project, *runs, *releases)
    going = [paths.run(project, name) for name in runs]
    going += [paths.release(project, name) for name in releases]
    return {"bytes": disk.freed([*disk.leftovers(project), *going])}


def _check(*names: str) -> None:
    for name in names:
        if not name or name.startswith(".") or "/" in name or "\0" in name:
            raise Refusal("{!r} is not the name of a run or a release".format(name))


def _run_stays(project: str, run: str) -> str:
    """Why a run may not go, looked at once more at the last moment; "" where it may."""
    if disk.is_kept(paths.run(project, run)):
        return "it is being resumed"
    for task, task_dir in disk.task_dirs(project, run).items():
        if disk.is_live(task_dir):
            return "its {} is live".format(task)
        mark = process.mark(project, run, task)
        if disk.state_of(task_dir) == records.LOST and process.members(mark):
            return "processes of its {} live on: tfdeploy stop ends them".format(task)
    return ""


def _release_stays(project: str, release: str) -> str:
    """Also a run that is a link to elsewhere uses its release."""
    for run in disk.visible(disk.runs_dir(project)):
        for task_dir in disk.task_dirs(project, run).values():
            named = disk.releases_of(task_dir)
            if release in named:
                return "run {} uses it".format(run)
            if not named:
                return "run {} may use it: its launch.json can't be read".format(run)
    return ""


def _forget(project: str) -> None:
    """What the releases held that are not here any more."""
    for name in disk.visible(paths.manifests(project)):
        release, ending = os.path.splitext(name)
        if ending == ".json" and not os.path.lexists(paths.release(project, release)):
            os.remove(os.path.join(paths.manifests(project), name))


def _take_away(path: str) -> Tuple[int, str]:
    """The bytes that its removal freed, and why not all of it could go."""
    folder, name = os.path.split(path)
    name = name if name.startswith(disk.REMOVING) else disk.REMOVING + name
    hidden = os.path.join(folder, "{}-{}".format(name[:LONG], secrets.token_hex(4)))
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            return 0, "it is no folder but a link or a file"
        os.rename(path, hidden)
    except FileNotFoundError:  # another removal was faster
        return 0, ""
    except OSError as error:
        return 0, str(error.strerror)
    freed, why = _delete(hidden)
    return freed, why and "not all of it can be deleted yet: {}".format(why)


def _delete(path: str) -> Tuple[int, str]:
    """Delete a tree, past what can't be (a busy file, one that NFS keeps for whoever has it open):
    the bytes that were freed, and the first thing that was in the way."""
    freed, why = 0, ""
    unseal(path)
    for act, each in _upwards(path):
        try:
            info = os.lstat(each)
            act(each)
        except FileNotFoundError:
            continue
        except OSError as error:
            why = why or str(error.strerror)
            continue
        if act is os.rmdir or info.st_nlink == 1:  # else the file has another name elsewhere
            freed += info.st_blocks * disk.BLOCK
    return freed, why


def _upwards(path: str) -> Iterator[Tuple[Callable[[str], None], str]]:
    """How each thing of a tree is deleted, a folder after what it holds; links are not followed."""
    for folder, folders, names in os.walk(path, topdown=False):
        inside = [os.path.join(folder, name) for name in folders]
        files = [os.path.join(folder, name) for name in names]
        for each in files + [other for other in inside if os.path.islink(other)]:
            yield os.unlink, each
        yield os.rmdir, folder
