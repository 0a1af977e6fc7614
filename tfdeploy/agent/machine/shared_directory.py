"""Find out whether two hosts share the store, as on a network file system.

The store has an id, `.id`. Two hosts with the same id either share it or have copies of it
(for example from one machine image). To tell these apart, each host creates the same mark: in a
shared directory only one of them succeeds.

A symlink that must not exist yet is created by the file server, so the result is current. What a
host caches of a network file system may be old (nfs(5), ac).
"""

from __future__ import annotations

import os
import time

from ...shared import filesystem
from ...shared.protocol.message import Done
from ...shared.protocol.releases import Marked, Renamed
from .. import paths

VISIBLE_S = 90.0  # more than the 60 s for which a host may trust what it has cached (acdirmax)
RETRY_S = 0.2


def store_id() -> str:
    """Return the store's id. All hosts that share the store, or have a copy, get the same id."""
    link = os.path.join(paths.store(), ".id")
    if not _create_link(link, os.urandom(16).hex()) and not os.path.islink(link):
        renew_store_id()  # a tool that follows links has copied the store
    return os.readlink(link)


def renew_store_id() -> Renamed:
    """Give the store a new id and return it."""
    link = os.path.join(paths.store(), ".id")
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


def wait_for_file(path: str, digest: str) -> str:
    """Return the hash of a file as this host sees it, "" if it sees none.

    Waits until the hash is `digest`, for at most VISIBLE_S: what another host has written may
    appear late. Listing the folder makes the host ask the file server again (nfs(5), ac).
    """
    deadline = time.monotonic() + VISIBLE_S
    while True:
        found = _hash(path)
        if found == digest or not digest or time.monotonic() > deadline:
            return found
        time.sleep(RETRY_S)


def _hash(path: str) -> str:
    try:
        os.listdir(os.path.dirname(path))
        return filesystem.sha256(path)
    except OSError:
        return ""


def _mark_path(word: str) -> str:
    return os.path.join(paths.store(), ".mark-" + word)


def _create_link(link: str, target: str) -> bool:
    """Return whether the link was created, and not there before."""
    try:
        os.symlink(target, link)
    except FileExistsError:
        return False
    return True
