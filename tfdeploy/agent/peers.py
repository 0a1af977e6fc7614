"""Can this host reach those tasks? All of them asked at once, from here, where they are dialled."""

from __future__ import annotations

from . import TYPE_CHECKING, at_once, circle, health, paths, records, wire
from .records import Launch

if TYPE_CHECKING:
    from typing import Any, Dict, List

AT_ONCE = 32


def ask(peers: List[Dict[str, Any]], timeout_s: float) -> List[Dict[str, str]]:
    """For each `{task, name, address, port}` what its port answers: `{task, verdict, detail}`. The
    name is what the task's own server calls it."""

    def one(peer: Dict[str, Any]) -> Dict[str, str]:
        answer = health.ask(peer["address"], peer["port"], peer["name"], timeout_s)
        return {"task": peer["task"], "verdict": answer.verdict, "detail": answer.detail}

    return at_once.each(one, peers, AT_ONCE)


def chief(project: str, run: str, timeout_s: float) -> str:
    """Why the chief's supervisor can't be asked from here how the run goes; "" where it can."""
    for task in paths.tasks(project, run):
        circle_here = records.load(Launch, paths.launch(paths.task(project, run, task))).circle
        try:
            circle.ask(circle_here, {}, timeout_s)
        except (OSError, wire.Untrusted) as error:
            return str(getattr(error, "strerror", None) or error)
        return ""
    return ""
