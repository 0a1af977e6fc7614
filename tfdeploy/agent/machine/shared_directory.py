"""Find out whether two hosts share the root directory, as on a network file system.

The root has an id, `.id`. Two hosts with the same id either share the root or have copies of it
(for example from one machine image). To tell these apart, each host creates the same mark: in a
shared directory only one of them succeeds.

A symlink that must not exist yet is created by the file server, so the result is current. What a
host caches of a network file system may be old (nfs(5), ac).
"""

from __future__ import annotations

import os

from .. import paths
from ..protocol.message import Done
from ..protocol.releases import Marked, Renamed


def root_id() -> str:
    """Return the id of the root. All hosts that share the root, or have a copy, get the same id."""
    link = os.path.join(paths.root(), ".id")
    if not _create_link(link, os.urandom(16).hex()) and not os.path.islink(link):
        renew_root_id()  # a tool that follows links has copied the root
    return os.readlink(link)


def renew_root_id() -> Renamed:
    """Give the root a new id and return it."""
    link = os.path.join(paths.root(), ".id")
    new_link = "{}.{}".format(link, os.urandom(8).hex())
    os.symlink(os.urandom(16).hex(), new_link)
    os.rename(new_link, link)
    return Renamed(os.readlink(link))


def claim_mark(word: str, host: str) -> Marked:
    """Create the mark `word` for `host`, and return the first host that created it."""
    _create_link(_mark_path(word), host)
    return Marked(os.readlink(_mark_path(word)))


def remove_mark(word: str) -> Done:
    try:
        os.unlink(_mark_path(word))
    except FileNotFoundError:
        pass
    return Done()


def _mark_path(word: str) -> str:
    return os.path.join(paths.root(), ".mark-" + word)


def _create_link(link: str, target: str) -> bool:
    """Return whether the link was created, and not there before."""
    try:
        os.symlink(target, link)
    except FileExistsError:
        return False
    return True
