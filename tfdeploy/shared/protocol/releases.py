"""Releases, data sets and the agent's directory on a host."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from .message import LONG_LIST, A, Done, Message, Request


class ReleaseRequest(Request[A]):
    """A request about a release."""

    project: str
    release: str


class ReleaseState(Message, tag="release_state"):
    """Whether the release is `present` as it was received; `here` is the id of the agent's
    directory, `changed` a path of the release that was changed on the host."""

    present: bool
    here: str
    changed: str = ""


class FindRelease(ReleaseRequest[ReleaseState], tag="offer"):
    """Ask whether a host has a release."""

    REPEATABLE = True


class MissingFiles(Message, tag="missing_files"):
    """What a host needs to complete a release: positions in the manifest (`wanted`), the folder in
    which the release grows (`incoming`), and a similar release beside it (`base`)."""

    present: bool
    wanted: List[int]
    incoming: str
    base: Optional[str]


class ListMissing(ReleaseRequest[MissingFiles], tag="lacks"):
    """Begin a release, or continue with one, from the files that the host has already."""

    REPEATABLE = True
    MAX_ANSWER_BYTES = LONG_LIST
    manifest: Dict[str, List[Any]]


class FilesReceived(Message, tag="files_received"):
    """Paths that are missing, or whose content is not what the manifest says: the first 20."""

    wrong: List[str]


class ReceiveFiles(ReleaseRequest[Done], tag="add"):
    """Read files from the `size` bytes that follow the request; others will follow."""

    size: int


class ReceiveLastFiles(ReleaseRequest[FilesReceived], tag="take"):
    """Read the last files from the `size` bytes that follow the request."""

    size: int


class AbandonRelease(ReleaseRequest[Done], tag="abandon"):
    """Delete what has arrived of a release."""


class Sharing(Message, tag="sharing"):
    """The TCP port on which a release is offered."""

    port: int


class Share(ReleaseRequest[Sharing], tag="share"):
    """Offer a whole release until the session ends, on one of `ports` (0: any), to hosts that show
    the PEM `identity`."""

    ports: List[int]
    identity: str


class Fetch(ReleaseRequest[FilesReceived], tag="fetch"):
    """Take what a release lacks from a host that shares it."""

    address: str
    port: int
    identity: str


class Seen(Message, tag="seen"):
    """The hash of a file as the host sees it, "" if it sees none."""

    digest: str


class SeeRelease(ReleaseRequest[Seen], tag="see_release"):
    """Ask for the hash of a release's manifest; wait some time until it is `digest` (unless "").
    The answer is "" without the release itself."""

    digest: str


class Marked(Message, tag="marked"):
    """The first host that made the mark, of all hosts that see this directory."""

    by: str


class Mark(Request[Marked], tag="mark"):
    """Leave a mark in the agent's directory, which another host sees if both share it."""

    word: str
    host: str


class Unmark(Request[Done], tag="unmark"):
    """Remove a mark."""

    word: str


class Renamed(Message, tag="renamed"):
    """The new id of the agent's directory."""

    here: str


class Rename(Request[Renamed], tag="rename"):
    """Give the agent's directory a new id, because it is a copy of another host's."""


def data_set_name(release: str) -> str:
    """Return the name of the data set that a release is a version of; "" for code."""
    return release.rpartition("-")[0]
