"""Answer the controller's requests, one after the other: a request is a line of JSON on stdin.

Each answer is a line on stdout. It starts with a mark, because a shell profile may print too.
"""

from __future__ import annotations

import json
import os
import sys
import zlib
from importlib import import_module
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..shared.protocol.message import (
    ABSENT,
    COMPRESSED,
    MARK,
    RECORD,
    Invalid,
    Message,
    parse,
    to_answer,
)
from . import paths
from .refusal import Refusal
from .runs import run_record
from .supervision import shortage

Body = Dict[str, Any]


# The request of each verb, in shared/protocol/, and the function that answers it. A module is
# loaded when it is first needed: together they take several times as long to load as Python.
VERBS = {
    "offer": ("releases.FindRelease", "releases.receive.offer"),
    "lacks": ("releases.ListMissing", "releases.receive.lacks"),
    "add": ("releases.ReceiveFiles", "releases.receive.add"),
    "take": ("releases.ReceiveLastFiles", "releases.receive.take"),
    "abandon": ("releases.AbandonRelease", "releases.receive.abandon"),
    "share": ("releases.Share", "releases.relay.share"),
    "fetch": ("releases.Fetch", "releases.relay.fetch"),
    "see_release": ("releases.SeeRelease", "releases.receive.see"),
    "mark": ("releases.Mark", "machine.shared_directory.claim_mark"),
    "unmark": ("releases.Unmark", "machine.shared_directory.remove_mark"),
    "rename": ("releases.Rename", "machine.shared_directory.renew_store_id"),
    "environment": ("environments.FindEnvironment", "environments.build.find"),
    "see_environment": ("environments.SeeEnvironment", "environments.build.see"),
    "build": ("environments.BuildEnvironment", "environments.build.build"),
    "survey": ("preflight.Survey", "preflight.host_facts.survey"),
    "explore": ("preflight.Explore", "preflight.machine_facts.explore"),
    "listen_on_ports": ("preflight.ListenOnPorts", "preflight.port_check.listen_on_ports"),
    "try_ports": ("preflight.TryPorts", "preflight.port_check.try_ports"),
    "find_live_tasks": ("preflight.FindLiveTasks", "preflight.links.live_tasks"),
    "listen_for_links": ("preflight.ListenForLinks", "preflight.links.listen_for_links"),
    "measure_link": ("preflight.MeasureLink", "preflight.links.measure_link"),
    "ports": ("preflight.Ports", "preflight.port_check.free_ports"),
    "require_unawaited": ("preflight.RequireUnawaited", "queue.resources.require_unawaited"),
    "start": ("runs.Start", "runs.start_and_follow.start_and_follow"),
    "recorded": ("runs.ListRecords", "runs.run_record.recorded"),
    "record": ("runs.ReadRecord", "runs.run_record.record"),
    "forget_record": ("runs.ForgetRecord", "runs.run_record.forget"),
    "enter": ("runs.Enter", "runs.enter.entrance"),
    "list_queue": ("reports.ListQueue", "queue.report.list_queue"),
    "move": ("reports.Move", "queue.report.move"),
    "status": ("reports.Status", "reports.status.status"),
    "follow": ("reports.Follow", "reports.follow.follow"),
    "stop": ("runs.Stop", "runs.stop.stop"),
    "change_run": ("runs.ChangeRun", "runs.change_lock.change"),
    "peers": ("preflight.Peers", "preflight.reachability.peers"),
    "unfinished_tasks": ("preflight.UnfinishedTasks", "preflight.reachability.unfinished_tasks"),
    "hold": ("outputs.Hold", "outputs.hold.hold"),
    "hold_copies": ("outputs.HoldCopies", "outputs.hold.hold_copies"),
    "end_hold": ("outputs.EndHold", "outputs.hold.end_hold"),
    "logs": ("reports.Logs", "reports.read_files.logs"),
    "outputs": ("outputs.ListOutputs", "outputs.listing.outputs"),
    "find": ("outputs.FindFiles", "outputs.listing.find"),
    "expect": ("outputs.ExpectUnits", "outputs.install.expect"),
    "deliver": ("outputs.DeliverUnits", "outputs.install.deliver"),
    "compare": ("outputs.CompareUnits", "outputs.compare.compare"),
    "replicated": (
        "outputs.ListReplicas",
        "supervision.replication.offered_files.replicated_outputs",
    ),
    "list_trials": ("reports.ListTrials", "reports.trials.list_trials"),
    "read_files": ("reports.ReadFiles", "reports.read_files.read_files"),
    "look": ("reports.LookAtHost", "reports.host_state.look"),
    "events": ("outputs.ListEvents", "outputs.event_files.events"),
    "disk": ("runs.MeasureDisk", "runs.disk.disk"),
    "results": ("outputs.ListResults", "runs.results.results"),
    "remove": ("runs.Remove", "runs.remove.remove"),
}
# The function of each first word of the agent's command line.
PROGRAMS = {
    "serve": "verbs.serve",
    "supervise": "runs.supervise.supervise",
    "notify": "reports.notify.send_all",
    "enter": "runs.enter.enter",
}
OTHER_VERSION = "another version of tfdeploy started this run: use that one for it"
REASONS = ("hint", "held_by", "busy", "outdated", "deleted", "changing", "newer")


def main(argv: List[str]) -> int:
    """Do what the command line says; return the exit code."""
    code: Optional[int] = resolve(PROGRAMS[argv[0]])(*argv[1:])
    return code or 0


def serve() -> int:
    """Answer until the controller closes the connection, or this agent's folder is deleted."""
    for line in iter(sys.stdin.buffer.readline, b""):
        if not os.path.isdir(paths.agent()):
            return ABSENT
        if line.strip():  # an empty line ends a `follow`, which may have ended by itself
            verb, body = _decode(line)
            try:
                _answer(verb, body)
            except BrokenPipeError:  # the controller has closed the connection
                sys.stdout = None  # so that Python does not flush it when it exits
                return 0
    return 0


def _decode(line: bytes) -> List[Any]:
    """Return the verb and the body of a request, which may be compressed."""
    decoded: List[Any] = json.loads(line)
    if decoded[0] != COMPRESSED:
        return decoded
    packed = sys.stdin.buffer.read(decoded[1]["size"])
    unpacked: List[Any] = json.loads(zlib.decompress(packed))
    return unpacked


def _answer(verb: str, body: Body) -> None:
    """Send one answer, or all answers of a stream and a line that ends it."""
    try:
        _refuse_other_systems()
        function, named = _call(verb, body)
        answer = function(**named)
        if isinstance(answer, Message):
            _send(to_answer(answer))
        else:
            for each in answer:
                _send(to_answer(each))
            _send({"end": True})
    except Refusal as refusal:
        _send(_refused(refusal))
    except BrokenPipeError:
        raise
    except Invalid as error:
        _send({"failed": "invalid request {}: {}".format(verb, error)})
    except Exception as error:
        known = _removed(body) or shortage.find(error)  # its run was deleted meanwhile
        if known:
            _send(_refused(known))
            return
        _send({"failed": "{}: {}".format(type(error).__name__, error)})
        sys.excepthook(type(error), error, error.__traceback__)


def _refuse_other_systems() -> None:
    if sys.platform != "linux":
        system = {"darwin": "macOS"}.get(sys.platform, sys.platform)
        raise Refusal(
            "hosts must run Linux; this one runs {}".format(system),
            "remove it from hosts.toml; macOS can be the controller of other hosts",
        )


def _refused(refusal: Refusal) -> Body:
    return {"refused": refusal.message, **{name: getattr(refusal, name) for name in REASONS}}


def _removed(body: Body) -> Optional[Refusal]:
    """Return the refusal of a request for a run that was deleted from this host, if it is one."""
    if not {"project", "run"} <= body.keys():
        return None
    return run_record.removal_refusal(str(body["project"]), str(body["run"]))


def _call(verb: str, body: Body) -> Tuple[Callable[..., Any], Body]:
    """Return the function that answers a request, and its arguments. Raises Invalid.

    A controller that asks for the first time says which record of the run it has, and whether it
    takes the run for the newest; raises Refusal if that is wrong, and for a run that was deleted.
    """
    if "project" in body:
        paths.refuse_unreadable(str(body["project"]), str(body.get("run", "")))
    record = body.pop(RECORD, None)
    if record:
        run_record.refuse_outdated(*record)
    if verb not in VERBS:
        raise Refusal("this agent does not know the request {!r:.40}".format(verb), OTHER_VERSION)
    request, function = (resolve(path) for path in VERBS[verb])
    removed = _removed(body) if request.READS_RUN else None
    if removed:
        raise removed
    return function, vars(parse(request, body))


def resolve(path: str) -> Any:
    """Import a function of the agent, or a request of the protocol, from its path in VERBS."""
    module, _, name = path.rpartition(".")
    package = "." if name[0].islower() else "..shared.protocol."
    return getattr(import_module(package + module, __package__), name)


def _send(answer: Body) -> None:
    sys.stdout.write(MARK + json.dumps(answer) + "\n")
    sys.stdout.flush()
