"""The summary of a run's end, which [notify] sends. Pure, except `newest_step`."""

from __future__ import annotations

import time
from typing import Any, Dict, Iterable, List, Mapping, Optional

from ...shared import state_file
from ...shared.outcome import Outcome, outcome_of
from ...shared.protocol.record import Record, to_json
from ...shared.records import Launch, TaskState
from .. import paths

HIDDEN = "***"


class EndSummary(Record):
    """How a run ended.

    `result` is one of outcome.Result, `reason` one sentence, "" for a success. `exit` is the exit
    code of `tfdeploy run`. `started` and `ended` are in seconds since 1970, by one machine's clock,
    since the last start or resume. `restarts` has each task, `checkpoint_step` the step of the
    newest checkpoint if it is known, `command` what shows more.
    """

    project: str
    run: str
    name: str
    release: str
    result: str
    reason: str
    exit: int
    started: float
    ended: float
    restarts: Dict[str, int]
    checkpoint_step: Optional[int]
    hosts: List[str]
    command: str

    @property
    def text(self) -> str:
        """Return one sentence for a chat."""
        duration = format_duration(self.ended - self.started)
        run = _run_words(self.name, self.run)
        verb = "was stopped" if self.result == "stopped" else self.result
        text = "{}: run {} {} after {}".format(self.project, run, verb, duration)
        return "{}: {}".format(text, self.reason) if self.reason else text


def to_document(summary: EndSummary, secrets: Iterable[str] = ()) -> Dict[str, Any]:
    """Return the JSON of a summary, without the values of `secrets`."""
    duration_s = round(max(0.0, summary.ended - summary.started), 1)
    return {
        "text": _hide(summary.text, secrets),
        **to_json(summary),
        "reason": _hide(summary.reason, secrets),
        "started": _format_time(summary.started),
        "ended": _format_time(summary.ended),
        "duration_s": duration_s,
    }


def slow_document(launch: Launch, host: str, reason: str) -> Dict[str, Any]:
    """Return the JSON that says what is slow on a host. It has the keys of a summary that are known
    while a run trains."""
    run = _run_words(launch.notify.name, launch.run)
    return {
        "text": "{}: run {}: {}: {}".format(launch.project, run, host, reason),
        "project": launch.project,
        "run": launch.run,
        "name": launch.notify.name,
        "release": launch.directory.release,
        "result": "slow",
        "reason": reason,
        "hosts": [host],
        "command": "tfdeploy status {}".format(launch.notify.flags),
    }


def _run_words(name: str, run: str) -> str:
    return "{} ({})".format(name, run) if name else run


def summarize(
    launch: Launch, states: Mapping[str, TaskState], started: float, ended: float, task_dir: str
) -> EndSummary:
    """Summarize a run on its chief's host; `launch` and `task_dir` are the chief's."""
    outcome = outcome_of(launch.task, states, launch.heartbeat.needed)
    verb = "logs" if outcome.result == "failed" else "status"
    return EndSummary(
        project=launch.project,
        run=launch.run,
        name=launch.notify.name,
        release=launch.directory.release,
        result=outcome.result,
        reason=_reason(launch, states, outcome),
        exit=outcome.exit,
        started=started,
        ended=ended,
        restarts={task: states[task].restarts for task in launch.heartbeat.tasks},
        checkpoint_step=newest_step(paths.checkpoints(task_dir, launch.directory.checkpoint_dir)),
        hosts=list(dict.fromkeys(launch.notify.hosts.values())),
        command="tfdeploy {} {}".format(verb, launch.notify.flags),
    )


def newest_step(folder: str) -> Optional[int]:
    """Return the step of the newest TensorFlow checkpoint in a folder, None if it is unknown."""
    steps = [state_file.step(name) for name in state_file.read(folder)[:1]]
    return steps[0] if steps else None


def format_duration(seconds: float) -> str:
    """Return `42s`, `3m 05s`, `2h 10m` or `4d 3h`."""
    whole = max(0, int(seconds))
    days, hours, minutes = whole // 86400, whole % 86400 // 3600, whole % 3600 // 60
    if days:
        return "{}d {}h".format(days, hours)
    if hours:
        return "{}h {:02}m".format(hours, minutes)
    return "{}m {:02}s".format(minutes, whole % 60) if minutes else "{}s".format(whole)


def _reason(launch: Launch, states: Mapping[str, TaskState], outcome: Outcome) -> str:
    """Return why the run ended; for a failure the root cause, in the words of `tfdeploy run`."""
    if outcome.result != "failed":
        return "" if outcome.result == "succeeded" else states[launch.task].reason
    task, state = outcome.task, states[outcome.task]
    times = "1 restart" if state.restarts == 1 else "{} restarts".format(state.restarts)
    after = " after " + times if state.restarts else ""
    host = launch.notify.hosts.get(task, "its host")
    return "{} on {}: it ended{}: {}".format(task, host, after, state.reason)


def _format_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _hide(text: str, secrets: Iterable[str]) -> str:
    """Return `text` with *** for each secret: an exception's message may have one."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text
