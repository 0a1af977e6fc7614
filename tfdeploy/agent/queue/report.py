"""The queue of this host as users see it: who waits for what, and why (the verb `list_queue`); and
how the user of a run moves it (`move`)."""

from __future__ import annotations

import math
import signal
from typing import Callable, Dict, List, Optional, Tuple

from ...shared import records
from ...shared.protocol.message import Done
from ...shared.protocol.record import replace
from ...shared.protocol.reports import HostQueue, QueuedRun
from ...shared.records import Launch
from .. import paths
from ..machine import leases, lock, process, stored
from ..machine.devices import vendors
from ..machine.leases import Holder
from ..refusal import Refusal
from . import places, resources
from .places import Place

AWAY = "another task of the run does not answer, so it lets others pass"
NEXT = "comes next"


def explain(launch: Launch) -> str:
    """Return why a queued task has not started."""
    waiting = [*_held_places()]
    own = [each for each in waiting if (each.run, each.task) == (launch.run, launch.task)]
    if launch.turn.waits_for and not own:
        return AWAY
    titles = {name: "GPU {}".format(gpu) for gpu, name in resources.gpus_of(launch).items()}
    reason = _reason(own, waiting, titles)
    if reason == NEXT:
        return _next(lambda: resources.require_available(launch))
    if places.is_first(own):
        return reason
    return "; ".join(filter(None, [reason, _taken(own, waiting, titles)]))


def list_queue() -> HostQueue:
    """List the runs of all users that wait here, first come first."""
    held = _held_places()
    by_run: Dict[Tuple[str, str], List[Place]] = {}
    for place, who in held.items():
        by_run.setdefault((place.run, who.user), []).append(place)
    titles = _gpu_titles() if any(each.resource.startswith("gpu/") for each in held) else {}
    return HostQueue([
        QueuedRun(
            project=held[own[0]].project,
            run=own[0].run,
            user=held[own[0]].user,
            priority=own[0].priority,
            submitted=own[0].submitted,
            age_s=held[own[0]].age_s,
            reason=_reason_of_run(own, [*held], titles),
        )
        for own in by_run.values()
    ])  # fmt: skip


def _reason_of_run(own: List[Place], waiting: List[Place], titles: Dict[str, str]) -> str:
    """Return why a run has not started, as far as its places say it, and who has what it needs."""
    reason = _reason(own, waiting, titles)
    if reason != NEXT:
        return reason
    return _next(lambda: resources.require_unused([each for each in own if not _holds(each)]))


def _next(require: Callable[[], None]) -> str:
    """Return why the first one has not started, if `require` raises it."""
    try:
        require()
    except Refusal as refusal:
        return refusal.message
    return NEXT


def move(project: str, run: str, task: str, priority: str) -> Done:
    """Give a queued run another priority. Raises Refusal if it does not wait."""
    task_dir = paths.task(project, run, task)
    supervisor = lock.holder(task_dir)
    launch, state = stored.launch(task_dir), stored.state(task_dir).state
    if not supervisor or state != records.QUEUED:
        raise Refusal("run {} does not wait in the queue: {} is {}".format(run, task, state))
    moved = replace(launch, turn=replace(launch.turn, priority=priority))
    records.write(paths.launch(task_dir), records.to_json(moved), 0o600)
    process.send_signal(supervisor, signal.SIGCHLD)  # look at it now
    return Done()


def _held_places() -> Dict[Place, Holder]:
    """Return all places and who has them, first come first."""
    found = ((place, places.holder(place)) for place in places.all_places())
    return {place: who for place, who in found if who}


def _reason(own: List[Place], waiting: List[Place], titles: Dict[str, str]) -> str:
    """Return what keeps tasks of one run, which have these places, from their start: the longest
    queue, or who has what they need."""
    ready = {place.task for place in own if _holds(place)}
    blocked = [place for place in own if place.task not in ready]
    blocked.sort(key=lambda place: titles.get(place.resource, ""))  # so that the answer is stable
    if not blocked:
        return records.HAS_PLACES
    ahead = max((places.ahead_of(place, waiting) for place in blocked), key=_count_runs)
    if not ahead:
        return _taken(blocked, waiting, titles) or NEXT
    last = ahead[-1]
    number = _ordinal(_count_runs(ahead) + 1)
    title = titles.get(last.resource, leases.title(last.resource))
    return "{} for {}, behind {}".format(number, title, _name(places.holder(last), last.run))


def _taken(own: List[Place], waiting: List[Place], titles: Dict[str, str]) -> str:
    """Return who has the first resource of these places that a run which does not wait, or another
    program, has; "" if there is none."""
    queued = {place.run for place in waiting}
    for place in own:
        holder = leases.holder(place.resource)
        if holder is None or holder.run in queued:
            continue
        title = titles.get(place.resource, leases.title(place.resource))
        left_s = places.seconds_left(holder)
        ends = "" if left_s is None else ", ends at the latest in {}".format(_format_limit(left_s))
        return "{} is taken by {}{}".format(title, _describe(holder), ends)
    return ""


def _describe(holder: Holder) -> str:
    if not holder.run:
        return holder.description
    age = "" if holder.age_s is None else ", started {} ago".format(leases.format_age(holder.age_s))
    return _name(holder, holder.run) + age


def _name(who: Optional[Holder], run: str) -> str:
    return "{}'s run {}".format(who.user, run) if who and who.user else "run {}".format(run)


def _holds(place: Place) -> bool:
    """Return whether the task of a place has taken the resource: it takes all it needs, or
    nothing."""
    holder = leases.holder(place.resource)
    return holder is not None and (holder.run, holder.task) == (place.run, place.task)


def _gpu_titles() -> Dict[str, str]:
    try:
        gpus = vendors.resources()
    except Refusal:  # it hangs, or fails
        return {}
    return {resource: "GPU {}".format(index) for index, resource in gpus.items()}


def _format_limit(seconds: float) -> str:
    """Return a time that is not shorter, such as `2h 5m`."""
    hours, minutes = divmod(math.ceil(seconds / 60), 60)
    return "{}h {}m".format(hours, minutes) if hours else "{}m".format(minutes)


def _count_runs(waiting: List[Place]) -> int:
    return len({place.run for place in waiting})


def _ordinal(number: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number, "number {}".format(number))
