"""What the controller may ask: one JSON object in, one JSON object out (`follow`: many)."""

from __future__ import annotations

import inspect
import json
import os
import sys
import traceback
from typing import Any, Callable, Dict, Iterator, List

from . import (
    checkpoints,
    copies,
    disk,
    follow,
    paths,
    peers,
    ports,
    records,
    releases,
    remove,
    start,
    status,
    stop,
    supervisor,
)
from .records import Launch
from .refusal import Refusal

Body = Dict[str, Any]


def main(argv: List[str]) -> int:
    verb, words = argv[0], argv[1:]
    if verb == "supervise":
        _supervise(words[0], *[int(word) for word in words[1:]])
        return 0
    body = json.loads(sys.stdin.readline())
    try:
        for answer in _answers(verb, body):
            _say(answer)
    except Refusal as no:
        _say({"refused": no.message, "hint": no.hint, "held_by": no.held_by})
    except BrokenPipeError:  # the controller has gone; nobody is left to tell
        sys.stderr = None
    except Exception as error:
        _say({"failed": "{}: {}".format(type(error).__name__, error)})
        traceback.print_exc()
    return 0


def _answers(verb: str, body: Body) -> Iterator[Body]:
    if verb == "follow":
        yield from follow.follow(**_known(follow.follow, body))
        yield {"end": True}
    else:
        yield VERBS[verb](**_known(VERBS[verb], body))


def _known(verb: Callable[..., Any], body: Body) -> Body:
    """A run is asked with the agent that started it, and a newer controller may say more to it."""
    return {name: body[name] for name in inspect.signature(verb).parameters if name in body}


def _say(answer: Body) -> None:
    sys.stdout.write(records.MARK + json.dumps(answer) + "\n")
    sys.stdout.flush()


def _start(launches: List[Body]) -> Body:
    return {"tasks": start.start([records.from_json(Launch, launch) for launch in launches])}


def _status(project: str, run: str, tail: int) -> Body:
    return {"tasks": [records.to_json(report) for report in status.status(project, run, tail)]}


def _stop(project: str, run: str, tasks: List[str], launched: str = "") -> Body:
    return {"tasks": stop.stop(project, run, tasks, launched)}


def _peers(project: str, run: str, peers_asked: List[Body], timeout_s: float) -> Body:
    found = peers.ask(peers_asked, timeout_s)
    return {"peers": found, "chief": peers.chief(project, run, timeout_s)}


def _ports(count: int) -> Body:
    return {"ports": ports.choose(count)}


def _unpin(project: str, run: str, task: str) -> Body:
    checkpoints.unpin(project, run, task)
    return {}


def _logs(project: str, run: str) -> Body:
    folder = paths.logs(project, run)
    return {"folder": folder, "names": os.listdir(folder) if os.path.isdir(folder) else []}


VERBS: Dict[str, Callable[..., Body]] = {
    "offer": releases.offer,
    "commit": releases.commit,
    "abandon": releases.abandon,
    "ports": _ports,
    "start": _start,
    "status": _status,
    "stop": _stop,
    "peers": _peers,
    "pin": checkpoints.pin,
    "newest": copies.newest,
    "unhold": copies.unhold,
    "receive": copies.receive,
    "adopt": copies.adopt,
    "unpin": _unpin,
    "logs": _logs,
    "disk": disk.disk,
    "remove": remove.remove,
}


def _supervise(task_dir: str, announced: int, *held: int) -> None:
    def announce() -> None:
        os.write(announced, b"+")
        os.close(announced)

    supervisor.supervise(task_dir, announce, list(held))
