"""Lay out a plan as a picture: hosts with their tasks, and lines between those that connect. Pure.

The ps are on the left and all other tasks on the right, so that the lines have a place. The unit is
a pixel of a phone: the picture is as wide as a small screen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfdeploy.formatting.humanize import format_count, format_job_counts

if TYPE_CHECKING:
    from tfdeploy.planning.plan import Placement, Plan

WIDTH = 340
LEFT_X, RIGHT_X, TASK_WIDTH = 10, 206, 112
TASK_HEIGHT, TASK_GAP, TITLE_HEIGHT, HOST_GAP = 36, 6, 26, 12
BUS_X = 164
MAX_TASKS = 64
MAX_NAME = 40  # characters


@dataclass(frozen=True)
class TaskBox:
    """A task with its upper left corner; `note` is its port and GPUs."""

    name: str
    note: str
    x: int
    y: int
    is_chief: bool

    @property
    def middle(self) -> int:
        return self.y + TASK_HEIGHT // 2


@dataclass(frozen=True)
class HostBox:
    name: str
    y: int
    height: int
    tasks: tuple[TaskBox, ...]


@dataclass(frozen=True)
class PlanPicture:
    """`lines` are paths of connections, `reads` those of an evaluator that reads checkpoints."""

    hosts: tuple[HostBox, ...]
    height: int
    lines: tuple[str, ...]
    reads: tuple[str, ...]


def draw(plan: Plan) -> PlanPicture | None:
    """Return the picture; None for more tasks than can be told apart."""
    if len(plan.placements) > MAX_TASKS:
        return None
    hosts: list[HostBox] = []
    y = 1
    for name in plan.hosts:
        hosts.append(_host_box(plan, name, y))
        y += hosts[-1].height + HOST_GAP
    boxes = {box.name: box for host in hosts for box in host.tasks}
    return PlanPicture(tuple(hosts), y - HOST_GAP + 1, _lines(boxes), _reads(plan, boxes))


def describe(plan: Plan) -> str:
    """Return who runs where and who talks to whom, in words."""
    counts: dict[str, int] = {}
    for placement in plan.placements:
        counts[placement.task.job] = counts.get(placement.task.job, 0) + 1
    parts = [f"{format_job_counts(counts)} on {format_count(len(plan.hosts), 'host')}"]
    trainers = counts.get("worker", 0) + counts.get("chief", 0)
    if "ps" in counts:
        parts.append("every worker connects to every ps")
    elif trainers > 1:
        parts.append("all workers connect to each other")
    if "evaluator" in counts:
        parts.append(f"the evaluator reads the checkpoints of {plan.chief.task}")
    parts.append(f"{plan.chief.task} saves the checkpoints")
    return "; ".join(parts)


def task_note(placement: Placement) -> str:
    """Return the port and the GPUs of a task, such as "port 2222, GPU 0,1"."""
    port = "" if placement.port is None else f"port {placement.port or 'auto'}"
    gpus = f"GPU {placement.gpu_names}" if placement.gpus else ""
    return ", ".join(filter(None, (port, gpus)))


def _host_box(plan: Plan, host: str, y: int) -> HostBox:
    columns: dict[int, list[TaskBox]] = {LEFT_X: [], RIGHT_X: []}
    for placement in plan.placements_on(host):
        x = LEFT_X if placement.task.job == "ps" else RIGHT_X
        task_y = y + TITLE_HEIGHT + len(columns[x]) * (TASK_HEIGHT + TASK_GAP)
        name, note = str(placement.task), task_note(placement)
        columns[x].append(TaskBox(name, note, x, task_y, placement == plan.chief))
    rows = max(len(column) for column in columns.values())
    height = TITLE_HEIGHT + rows * (TASK_HEIGHT + TASK_GAP) + 4
    name = host if len(host) <= MAX_NAME else f"{host[: MAX_NAME - 1]}…"
    return HostBox(name, y, height, (*columns[LEFT_X], *columns[RIGHT_X]))


def _lines(boxes: dict[str, TaskBox]) -> tuple[str, ...]:
    left = [box for box in boxes.values() if box.x == LEFT_X]
    right = [box for box in boxes.values() if box.name.startswith(("worker:", "chief:"))]
    start, end = LEFT_X + TASK_WIDTH, RIGHT_X
    if left:
        return tuple(
            f"M{start} {a.middle} C{BUS_X} {a.middle} {BUS_X} {b.middle} {end} {b.middle}"
            for a in left
            for b in right
        )
    if len(right) < 2:
        return ()
    stubs = (f"M{BUS_X} {box.middle} H{end}" for box in right)
    return f"M{BUS_X} {right[0].middle} V{right[-1].middle}", *stubs


def _reads(plan: Plan, boxes: dict[str, TaskBox]) -> tuple[str, ...]:
    chief, x = boxes[str(plan.chief.task)], RIGHT_X + TASK_WIDTH
    evaluators = [box for box in boxes.values() if box.name.startswith("evaluator:")]
    return tuple(
        f"M{x} {chief.middle} C{WIDTH - 4} {chief.middle} {WIDTH - 4} {box.middle} {x} {box.middle}"
        for box in evaluators
    )
