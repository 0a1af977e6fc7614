"""The verbs `offer`, `commit`, `abandon`: a release appears on this host whole or not at all."""

from __future__ import annotations

import os
import shutil
import stat
from typing import Any, Dict, List, Optional

from . import paths
from .verify import sha256


def offer(project: str, release: str) -> Dict[str, Any]:
    """Is the release here? If not, where should it grow, and which neighbour resembles it?"""
    if os.path.isdir(paths.release(project, release)):
        return {"present": True}
    incoming = paths.incoming(project, release)
    paths.make_private(project)
    os.makedirs(incoming, exist_ok=True)
    unseal(incoming)  # it may have been sealed, and not been renamed any more
    return {"present": False, "incoming": incoming, "base": _newest(project)}


def commit(project: str, release: str, manifest: Dict[str, List[Any]]) -> Dict[str, Any]:
    """Compare what arrived with the manifest; seal and show it, or name the paths that differ."""
    incoming, final = paths.incoming(project, release), paths.release(project, release)
    if os.path.isdir(final):
        return {"wrong": []}
    try:
        wrong = _finish(incoming, final, manifest)
    except OSError:
        if not os.path.isdir(final):
            raise
    if os.path.isdir(final):  # ours, or that of another push of the same release that was faster
        unseal(incoming)
        shutil.rmtree(incoming, ignore_errors=True)
        return {"wrong": []}
    return {"wrong": wrong[:20]}


def abandon(project: str, release: str) -> Dict[str, Any]:
    """Give up a release that grows here: what has arrived of it goes."""
    incoming = paths.incoming(project, release)
    unseal(incoming)
    shutil.rmtree(incoming, ignore_errors=True)
    return {}


def unseal(top: str) -> None:
    """A folder that can't be written can't be filled or removed either. What can't be unsealed
    will say so itself when it is written to."""
    _unseal_one(top)
    for folder, folders, _ in os.walk(top):
        for name in folders:
            _unseal_one(os.path.join(folder, name))


def _finish(incoming: str, final: str, manifest: Dict[str, List[Any]]) -> List[str]:
    _drop_strangers(incoming, manifest)
    wrong = [path for path, entry in manifest.items() if not _matches(incoming, path, entry)]
    if not wrong:
        _seal(incoming, manifest)
        os.rename(incoming, final)
    return sorted(wrong)


def _newest(project: str) -> Optional[str]:
    folder = paths.releases(project)
    with os.scandir(folder) as entries:
        whole = [entry for entry in entries if not entry.name.startswith(".")]
    newest = max(whole, key=lambda entry: entry.stat().st_ctime, default=None)
    return newest.path if newest else None


def _drop_strangers(incoming: str, manifest: Dict[str, List[Any]]) -> None:
    """What an earlier, broken push left here and this release doesn't hold."""
    for folder, folders, names in os.walk(incoming):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in names + links:
            path = os.path.join(folder, name)
            if os.path.relpath(path, incoming) not in manifest:
                os.remove(path)


def _matches(incoming: str, path: str, entry: List[Any]) -> bool:
    full = os.path.join(incoming, path)
    if os.path.realpath(os.path.dirname(full)) != os.path.dirname(
        os.path.join(os.path.realpath(incoming), path)
    ):
        return False  # a link stands where a folder should
    try:
        mode = os.lstat(full).st_mode
        if entry[0] == "link":
            return stat.S_ISLNK(mode) and os.readlink(full) == entry[1]
        return stat.S_ISREG(mode) and sha256(full) == entry[1]
    except OSError:
        return False


def _seal(incoming: str, manifest: Dict[str, List[Any]]) -> None:
    """Read-only from now on, so that no run can change what another one trains with."""
    for path, entry in manifest.items():
        if entry[0] == "file":
            os.chmod(os.path.join(incoming, path), 0o555 if entry[2] else 0o444)
    for folder, _, _ in os.walk(incoming, topdown=False):
        os.chmod(folder, 0o555)


def _unseal_one(folder: str) -> None:
    try:
        if not os.path.islink(folder):
            os.chmod(folder, 0o755)
    except OSError:
        pass
