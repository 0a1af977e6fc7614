"""What the controller may ask: question after question, a line of JSON each, answered in turn.

Every answer is a line, too, behind a mark that tells it from what a talkative profile prints.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from importlib import import_module

from . import TYPE_CHECKING, paths
from .refusal import Refusal

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Sequence

    Body = Dict[str, Any]

# Every line that is meant for the controller begins so: a shell profile may print too.
MARK = "tfdeploy-answer:"
ABSENT = 96
# Where the answer to each is found. A module is loaded when it is first asked for: together they
# take several times as long as Python itself.
VERBS = {
    "offer": "releases.offer",
    "lacks": "releases.lacks",
    "add": "releases.add",
    "take": "releases.take",
    "abandon": "releases.abandon",
    "share": "relay.share",
    "fetch": "relay.fetch",
    "mark": "roots.mark",
    "unmark": "roots.unmark",
    "rename": "roots.rename",
    "survey": "survey.survey",
    "doors": "doors.doors",
    "knock": "doors.knock",
    "ports": "verbs.ports",
    "start": "verbs.start",
    "status": "verbs.status",
    "follow": "follow.follow",
    "stop": "verbs.stop",
    "peers": "verbs.peers",
    "pin": "checkpoints.pin",
    "newest": "copies.newest",
    "unhold": "copies.unhold",
    "receive": "copies.receive",
    "adopt": "copies.adopt",
    "unpin": "verbs.unpin",
    "logs": "verbs.logs",
    "give": "give.give",
    "load": "load.load",
    "events": "event_files.events",
    "disk": "disk.disk",
    "weigh": "remove.weigh",
    "remove": "remove.remove",
}
# After a push comes a start, mostly. What that needs is loaded once nobody has asked for so long.
START = ("records", "start", "apart", "supervisor")
FORESEEN = {"offer": START, "take": START}
QUIET_S = 0.3


def main(argv: List[str]) -> int:
    if argv[0] == "supervise":
        from .supervisor import supervise

        supervise(argv[1], *[int(word) for word in argv[2:]])
        return 0
    return serve()


def serve() -> int:
    """Answer until the controller hangs up, or until we have been removed from this host."""
    for line in iter(sys.stdin.buffer.readline, b""):
        if not os.path.isdir(paths.agent()):
            return ABSENT
        if line.strip():  # an empty one ends a `follow`, which may just have ended by itself
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            verb, body = json.loads(line)
            try:
                _answer(verb, body)
            except BrokenPipeError:  # the controller has gone; nobody is left to tell
                sys.stdout = None  # nor to be flushed to at our end
                return 0
            _foresee(FORESEEN.get(verb, ()))
    return 0


def _foresee(modules: Sequence[str]) -> None:
    """Load them while we wait for the next question, if that takes its time."""

    def load(*_: object) -> None:
        try:
            for module in modules:
                import_module("." + module, __package__)
        except ImportError:  # we have been removed from this host, as the next question finds out
            return

    if modules:
        signal.signal(signal.SIGALRM, load)
        signal.setitimer(signal.ITIMER_REAL, QUIET_S)


def _answer(verb: str, body: Body) -> None:
    try:
        for answer in _answers(_function(verb), body):
            _say(answer)
    except Refusal as no:
        _say({"refused": no.message, "hint": no.hint, "held_by": no.held_by})
    except BrokenPipeError:
        raise
    except Exception as error:
        import traceback  # costs as much as Python's own start

        _say({"failed": "{}: {}".format(type(error).__name__, error)})
        traceback.print_exc()


def _answers(verb: Callable[..., Any], body: Body) -> Iterator[Body]:
    answer = verb(**_known(verb, body))
    if isinstance(answer, dict):
        yield answer
    else:
        yield from answer
        yield {"end": True}


def _function(verb: str) -> Callable[..., Any]:
    module, _, name = VERBS[verb].partition(".")
    function: Callable[..., Any] = getattr(import_module("." + module, __package__), name)
    return function


def _known(verb: Callable[..., Any], body: Body) -> Body:
    """A run is asked with the agent that started it, and a newer controller may say more to it."""
    code = verb.__code__
    return {name: body[name] for name in code.co_varnames[: code.co_argcount] if name in body}


def _say(answer: Body) -> None:
    sys.stdout.write(MARK + json.dumps(answer) + "\n")
    sys.stdout.flush()


def start(launches: List[Body]) -> Body:
    from . import records
    from .start import start

    return {"tasks": start([records.from_json(records.Launch, launch) for launch in launches])}


def status(project: str, run: str, tail: int) -> Body:
    from . import records
    from .status import status

    return {"tasks": [records.to_json(report) for report in status(project, run, tail)]}


def stop(project: str, run: str, tasks: List[str], launched: str = "") -> Body:
    from .stop import stop

    return {"tasks": stop(project, run, tasks, launched)}


def peers(project: str, run: str, peers_asked: List[Body], timeout_s: float) -> Body:
    from . import peers

    found = peers.ask(peers_asked, timeout_s)
    return {"peers": found, "chief": peers.chief(project, run, timeout_s)}


def ports(count: int) -> Body:
    from .ports import choose

    return {"ports": choose(count)}


def unpin(project: str, run: str, task: str) -> Body:
    from .checkpoints import unpin

    unpin(project, run, task)
    return {}


def logs(project: str, run: str) -> Body:
    folder = paths.logs(project, run)
    return {"folder": folder, "names": os.listdir(folder) if os.path.isdir(folder) else []}
