"""The queue of this host as users see it: who waits for what, and why (the verb `list_queue`); and
how the user of a run moves it (`move`)."""

from __future__ import annotations

import signal
import time

from ...shared import TYPE_CHECKING, records
from ...shared.protocol.message import Done
from ...shared.protocol.record import replace
from ...shared.protocol.reports import HostQueue, WaitingTask
from ...shared.records import Launch
from .. import paths
from ..machine import leases, lock, nvidia, process
from ..refusal import Refusal
from . import places, resources

if TYPE_CHECKING:
    from typing import Dict, List, Optional

    from .places import Place

AWAY = "a host of the run does not answer, so it lets others pass"
READY = "has what it needs here, and waits for the other hosts of its run"
NEXT = "comes next"


def explain(launch: Launch) -> str:
    """Return why a queued task has not started."""
    waiting = places.all_places()
    own = [each for each in waiting if (each.run, each.task) == (launch.run, launch.task)]
    if launch.waits_for and not own:
        return AWAY
    reason = _reason(own, waiting, _titles(launch))
    if reason != NEXT:
        return reason
    try:
        return "; ".join(refusal.message for refusal in resources.taken(launch)) or NEXT
    except Refusal as refusal:  # nvidia-smi hangs
        return refusal.message


def list_queue() -> HostQueue:
    """List the tasks of all users that wait here, first come first."""
    waiting = places.all_places()
    by_task: Dict[str, List[Place]] = {}
    for place in waiting:
        by_task.setdefault("{0.run} {0.task}".format(place), []).append(place)
    titles = _all_titles(waiting)
    now = time.time()  # one for all: tasks that came in the same second have the same age
    found = (_waiting(own, waiting, titles, now) for own in by_task.values())
    return HostQueue([task for task in found if task])


def move(project: str, run: str, task: str, priority: int) -> Done:
    """Give a queued run another priority. Raises Refusal if it does not wait."""
    task_dir = paths.task(project, run, task)
    supervisor = lock.holder(task_dir)
    launch = records.load(Launch, paths.launch(task_dir))
    state = records.load(records.TaskState, paths.state(task_dir)).state
    if not supervisor or state != records.QUEUED:
        raise Refusal("run {} does not wait in the queue: {} is {}".format(run, task, state))
    moved = replace(launch, priority=priority)
    records.write(paths.launch(task_dir), records.to_json(moved), 0o600)
    process.send_signal(supervisor, signal.SIGCHLD)  # look at it now
    return Done()


def _waiting(
    own: List[Place], waiting: List[Place], titles: Dict[str, str], now: float
) -> Optional[WaitingTask]:
    """Return a task that waits; None if it has just ended."""
    who = places.holder(own[0])
    if who is None:
        return None
    return WaitingTask(
        project=who.project,
        run=own[0].run,
        task=own[0].task,
        user=who.user,
        priority=own[0].priority,
        age_s=max(0.0, now - own[0].submitted),
        waits_for=[titles[place.resource] for place in own],
        reason=_reason(own, waiting, titles),
    )


def _reason(own: List[Place], waiting: List[Place], titles: Dict[str, str]) -> str:
    """Return what keeps a task, which has these places, from its start."""
    behind = {place.resource: places.ahead_of(place, waiting) for place in own}
    longest = max(own, key=lambda place: len(behind[place.resource]), default=None)
    ahead = behind[longest.resource] if longest else []
    if longest and ahead:
        title = titles[longest.resource]
        next_one = places.holder(ahead[-1])
        name = "run {}".format(ahead[-1].run)
        if next_one and next_one.user:
            name = "{}'s {}".format(next_one.user, name)
        text = "{} for {}, behind {}".format(_ordinal(len(ahead) + 1), title, name)
        taken = _taken(longest, titles)
        return text + ("; " + taken if taken else "")
    if any(_holds(place) for place in own) or not own:
        return READY
    return next(filter(None, (_taken(place, titles) for place in own)), NEXT)


def _taken(place: Place, titles: Dict[str, str]) -> str:
    """Return who has the resource of a place; "" if nobody has, or the run itself."""
    holder = leases.holder(place.resource)
    if holder is None or holder.run == place.run:
        return ""
    left_s = places.seconds_left(holder)
    ends = "" if left_s is None else ", and ends within {}".format(leases.format_age(left_s))
    return "{} is taken by {}{}".format(titles[place.resource], holder.description, ends)


def _holds(place: Place) -> bool:
    """Return whether the task of a place has taken the resource: it takes all it needs, or
    nothing."""
    holder = leases.holder(place.resource)
    return holder is not None and (holder.run, holder.task) == (place.run, place.task)


def _titles(launch: Launch) -> Dict[str, str]:
    """Return the words for what a task waits for: a GPU by its index."""
    words = {name: "GPU {}".format(gpu) for gpu, name in resources.gpus_of(launch).items()}
    return {each: words.get(each, leases.title(each)) for each in launch.waits_for}


def _all_titles(waiting: List[Place]) -> Dict[str, str]:
    names = {place.resource for place in waiting}
    has_gpus = any(each.startswith("gpu/") for each in names)
    try:
        gpus = nvidia.gpu_resources() if has_gpus else {}
    except Refusal:  # it hangs
        gpus = {}
    words = {resource: "GPU {}".format(index) for index, resource in gpus.items()}
    return {each: words.get(each, leases.title(each)) for each in names}


def _ordinal(number: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number, "{}th".format(number))
