"""Is our root seen by other hosts, too? A home may lie on a network; a copied one only looks alike.

What is asked of the file system here is decided by the server, where there is one: to make what
must not be there yet. What a host remembers of a network file system may be old (nfs(5), ac).
"""

from __future__ import annotations

import os

from . import TYPE_CHECKING, paths

if TYPE_CHECKING:
    from typing import Any, Dict


def name() -> str:
    """Names the root, to whichever hosts see it; and to those that have a copy of it."""
    link = os.path.join(paths.root(), ".id")
    if not _made(link, os.urandom(16).hex()) and not os.path.islink(link):
        rename()  # it was copied by something that follows links
    return os.readlink(link)


def rename() -> Dict[str, Any]:
    """Answers `{here}`, a new name."""
    link = os.path.join(paths.root(), ".id")
    own = "{}.{}".format(link, os.urandom(8).hex())
    os.symlink(os.urandom(16).hex(), own)
    os.rename(own, link)
    return {"here": os.readlink(link)}


def mark(word: str, host: str) -> Dict[str, Any]:
    """Answers `{by}`: the first `host` that made this mark, of all who see this root."""
    _made(_mark(word), host)
    return {"by": os.readlink(_mark(word))}


def unmark(word: str) -> Dict[str, Any]:
    try:
        os.unlink(_mark(word))
    except FileNotFoundError:
        pass
    return {}


def _mark(word: str) -> str:
    return os.path.join(paths.root(), ".mark-" + word)


def _made(link: str, target: str) -> bool:
    try:
        os.symlink(target, link)
    except FileExistsError:
        return False
    return True
