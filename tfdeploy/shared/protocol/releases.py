"""Releases, data sets and the agent's directory on a host."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from .message import LONG_LIST, Done, Message, Request


class ReleaseState(Message):
    """Whether the release is `present`; `here` is the id of the agent's directory."""

    present: bool
    here: str


class FindRelease(Request[ReleaseState]):
    """Ask whether a host has a release."""

    VERB = "offer"
    project: str
    release: str


class MissingFiles(Message):
    """What a host needs to complete a release: positions in the manifest (`wanted`), the folder in
    which the release grows (`incoming`), and a similar release beside it (`base`)."""

    present: bool
    wanted: List[int]
    incoming: str
    base: Optional[str]


class ListMissing(Request[MissingFiles]):
    """Begin a release, or continue with one, from the files that the host has already."""

    VERB = "lacks"
    MAX_ANSWER_BYTES = LONG_LIST
    project: str
    release: str
    manifest: Dict[str, List[Any]]


class FilesReceived(Message):
    """Paths that are missing, or whose content is not what the manifest says: the first 20."""

    wrong: List[str]


class ReceiveFiles(Request[Done]):
    """Read files from the `size` bytes that follow the request; others will follow."""

    VERB = "add"
    project: str
    release: str
    size: int


class ReceiveLastFiles(Request[FilesReceived]):
    """Read the last files from the `size` bytes that follow the request."""

    VERB = "take"
    project: str
    release: str
    size: int


class AbandonRelease(Request[Done]):
    """Delete what has arrived of a release."""

    VERB = "abandon"
    project: str
    release: str


class Sharing(Message):
    """The TCP port on which a release is offered."""

    port: int


class Share(Request[Sharing]):
    """Offer a whole release until the session ends, on one of `ports` (0: any), to hosts that show
    the PEM `identity`."""

    project: str
    release: str
    ports: List[int]
    identity: str


class Fetch(Request[FilesReceived]):
    """Take what a release lacks from a host that shares it."""

    project: str
    release: str
    address: str
    port: int
    identity: str


class Seen(Message):
    """The hash of a file as the host sees it, "" if it sees none."""

    digest: str


class SeeRelease(Request[Seen]):
    """Ask for the hash of a release's manifest; wait some time until it is `digest` (unless "").
    The answer is "" without the release itself."""

    project: str
    release: str
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
