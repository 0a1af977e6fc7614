"""What the launches of a run have in common: it is sent to a host once, not with each task."""

from __future__ import annotations

import re

from .. import TYPE_CHECKING
from .message import Message
from .record import replace

if TYPE_CHECKING:
    from typing import Callable, Dict, List

    from ..records import Launch

# Stands for a shared text. No other text can have the character 0, except where it stands for the
# task's directory, and that is followed by a slash.
REFERENCE = "\0{}\0"
REFERENCES = re.compile("\0([0-9]+)\0")


class SharedParts(Message):
    """What launches leave out. `texts` are long: the cluster as JSON, and the addresses of each
    job; argv, env and files refer to them. The others are the lists of all tasks and addresses."""

    texts: List[str]
    no_proxy: List[str]
    tasks: List[str]
    needed: List[str]
    replicas: List[str]


def leave_out(launch: Launch, shared: SharedParts) -> Launch:
    """Return a launch without what it has in common with the others."""

    def refer(text: str) -> str:
        for number, long in enumerate(shared.texts):
            text = text.replace(long, REFERENCE.format(number))
        return text

    heartbeat = replace(launch.heartbeat, tasks=[], needed=[], replicas=[])
    return _with_texts(replace(launch, no_proxy=[], heartbeat=heartbeat), refer)


def put_back(launch: Launch, shared: SharedParts) -> Launch:
    """Return the launch from which `leave_out` has made this one."""

    def insert(text: str) -> str:
        return REFERENCES.sub(lambda found: shared.texts[int(found.group(1))], text)

    heartbeat = replace(
        launch.heartbeat, tasks=shared.tasks, needed=shared.needed, replicas=shared.replicas
    )
    return _with_texts(replace(launch, no_proxy=shared.no_proxy, heartbeat=heartbeat), insert)


def _with_texts(launch: Launch, change: Callable[[str], str]) -> Launch:
    def change_values(texts: Dict[str, str]) -> Dict[str, str]:
        return {name: change(text) for name, text in texts.items()}

    argv = [change(word) for word in launch.argv]
    return replace(
        launch, argv=argv, env=change_values(launch.env), files=change_values(launch.files)
    )
