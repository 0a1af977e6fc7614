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
from ..machine import leases, lock, nvidia, process, queue
from ..refusal import Refusal

if TYPE_CHECKING:
    from typing import Dict, List, Optional

    from ..machine.queue import Place

AWAY = "a host of the run does not answer, so it lets others pass"
READY = "has what it needs here, and waits for the other hosts of its run"
NEXT = "comes next"


def explain(launch: Launch) -> str:
    """Return why a queued task has not started."""
    places = queue.all_places()
    own = [each for each in places if (each.run, each.task) == (launch.run, launch.task)]
    if launch.waits_for and not own:
        return AWAY
    reason = _reason(own, places, _titles(launch))
    other = queue.other_use(launch) if reason == NEXT else None
    return other.message if other else reason


def list_queue() -> HostQueue:
    """List the tasks of all users that wait here, first come first."""
    places = queue.all_places()
    by_task: Dict[str, List[Place]] = {}
    for place in places:
        by_task.setdefault("{0.run} {0.task}".format(place), []).append(place)
    titles = _all_titles(places)
    found = (_waiting(own, places, titles) for own in by_task.values())
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
    own: List[Place], places: List[Place], titles: Dict[str, str]
) -> Optional[WaitingTask]:
    """Return a task that waits; None if it has just ended."""
    who = queue.holder(own[0])
    if who is None:
        return None
    return WaitingTask(
        project=who.project,
        run=own[0].run,
        task=own[0].task,
        user=who.user,
        priority=own[0].priority,
        age_s=max(0.0, time.time() - own[0].submitted),
        waits_for=[titles[place.resource] for place in own],
        reason=_reason(own, places, titles),
    )


def _reason(own: List[Place], places: List[Place], titles: Dict[str, str]) -> str:
    """Return what keeps a task, which has these places, from its start."""
    behind = {place.resource: queue.ahead_of(place, places) for place in own}
    longest = max(own, key=lambda place: len(behind[place.resource]), default=None)
    ahead = behind[longest.resource] if longest else []
    if longest and ahead:
        title = titles[longest.resource]
        next_one = queue.holder(ahead[-1])
        name = "run {}".format(ahead[-1].run)
        if next_one and next_one.user:
            name = "{}'s {}".format(next_one.user, name)
        text = "{} for {}, behind {}".format(_ordinal(len(ahead) + 1), title, name)
        taken = _taken(longest, titles)
        return text + ("; " + taken if taken else "")
    return next(filter(None, (_taken(place, titles) for place in own)), "") or (
        READY if _holds_all(own) else NEXT
    )


def _taken(place: Place, titles: Dict[str, str]) -> str:
    """Return who has the resource of a place; "" if nobody has, or the run itself."""
    holder = leases.holder(place.resource)
    if holder is None or holder.run == place.run:
        return ""
    return "{} is taken by {}".format(titles[place.resource], holder.description)


def _holds_all(own: List[Place]) -> bool:
    holders = [leases.holder(place.resource) for place in own]
    return all(holder is not None for holder in holders)


def _titles(launch: Launch) -> Dict[str, str]:
    """Return the words for what a task waits for: a GPU by its index."""
    words = {resource: "GPU {}".format(gpu) for gpu, resource in queue.gpus_of(launch).items()}
    return {each: words.get(each, leases.title(each)) for each in launch.waits_for}


def _all_titles(places: List[Place]) -> Dict[str, str]:
    resources = {place.resource for place in places}
    has_gpus = any(each.startswith("gpu/") for each in resources)
    gpus = nvidia.gpu_resources() if has_gpus else {}
    words = {resource: "GPU {}".format(index) for index, resource in gpus.items()}
    return {each: words.get(each, leases.title(each)) for each in resources}


def _ordinal(number: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number, "{}th".format(number))
