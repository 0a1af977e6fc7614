"""Releases, data sets and the agent's directory on a host."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from .message import LONG_LIST, A, Done, Message, Request


class ReleaseRequest(Request[A]):
    """A request about a release."""

    project: str
    release: str


class ReleaseState(Message):
    """Whether the release is `present` as it was received; `here` is the id of the agent's
    directory, `changed` a path of the release that was changed on the host."""

    present: bool
    here: str
    changed: str = ""


class FindRelease(ReleaseRequest[ReleaseState]):
    """Ask whether a host has a release."""

    VERB = "offer"
    REPEATABLE = True


class MissingFiles(Message):
    """What a host needs to complete a release: positions in the manifest (`wanted`), the folder in
    which the release grows (`incoming`), and a similar release beside it (`base`)."""

    present: bool
    wanted: List[int]
    incoming: str
    base: Optional[str]


class ListMissing(ReleaseRequest[MissingFiles]):
    """Begin a release, or continue with one, from the files that the host has already."""

    VERB = "lacks"
    REPEATABLE = True
    MAX_ANSWER_BYTES = LONG_LIST
    manifest: Dict[str, List[Any]]


class FilesReceived(Message):
    """Paths that are missing, or whose content is not what the manifest says: the first 20."""

    wrong: List[str]


class ReceiveFiles(ReleaseRequest[Done]):
    """Read files from the `size` bytes that follow the request; others will follow."""

    VERB = "add"
    size: int


class ReceiveLastFiles(ReleaseRequest[FilesReceived]):
    """Read the last files from the `size` bytes that follow the request."""

    VERB = "take"
    size: int


class AbandonRelease(ReleaseRequest[Done]):
    """Delete what has arrived of a release."""

    VERB = "abandon"


class Sharing(Message):
    """The TCP port on which a release is offered."""

    port: int


class Share(ReleaseRequest[Sharing]):
    """Offer a whole release until the session ends, on one of `ports` (0: any), to hosts that show
    the PEM `identity`."""

    ports: List[int]
    identity: str


class Fetch(ReleaseRequest[FilesReceived]):
    """Take what a release lacks from a host that shares it."""

    address: str
    port: int
    identity: str


class Seen(Message):
    """The hash of a file as the host sees it, "" if it sees none."""

    digest: str


class SeeRelease(ReleaseRequest[Seen]):
    """Ask for the hash of a release's manifest; wait some time until it is `digest` (unless "").
    The answer is "" without the release itself."""

    digest: str


class Marked(Message):
    """The first host that made the mark, of all hosts that see this directory."""

    by: str


class Mark(Request[Marked]):
    """Leave a mark in the agent's directory, which another host sees if both share it."""

    word: str
    host: str


class Unmark(Request[Done]):
    """Remove a mark."""

    word: str


class Renamed(Message):
    """The new id of the agent's directory."""

    here: str


class Rename(Request[Renamed]):
    """Give the agent's directory a new id, because it is a copy of another host's."""


def data_set_name(release: str) -> str:
    """Return the name of the data set that a release is a version of; "" for code."""
    return release.rpartition("-")[0]
