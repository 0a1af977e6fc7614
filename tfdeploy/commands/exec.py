"""`tfdeploy exec` and `tfdeploy ssh`: run a command, or a shell, as a task runs.

It runs in the task's directory with the task's environment, whether the task runs or has ended. A
stop of the run does not end it.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from tfdeploy.errors import AgentError, TaskFailed, TfdeployError, raise_all
from tfdeploy.hosts.fleet import answers_of, errors_of
from tfdeploy.hosts.parallel import call_each
from tfdeploy.planning.plan import select_placement, select_placements
from tfdeploy.shared.protocol.runs import Enter
from tfdeploy.transport.openssh import foreground

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tfdeploy.config.inventory import Inventory
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.planning.plan import Placement
    from tfdeploy.run import Run
    from tfdeploy.shared.protocol.runs import TaskEntrance

MAX_WORDS_BYTES = 64 << 10  # Linux takes twice as much in one word, and base64 adds a third
THREADS = 128


@dataclass(frozen=True)
class Entrance:
    """A task, and how to run a command in its directory with its environment."""

    placement: Placement
    words: tuple[str, ...]
    directory: str


def find_entrance(fleet: Fleet, run: Run, task: str) -> Entrance:
    """Return the entrance of the only task that a name matches. Raises PlanError if it matches
    several, and as `find_entrances`."""
    select_placement(run.plan, task)
    entrances, errors = find_entrances(fleet, run, [task])
    raise_all(errors)
    return entrances[0]


def find_entrances(
    fleet: Fleet, run: Run, tasks: Sequence[str], on: Sequence[str] = ()
) -> tuple[list[Entrance], list[TfdeployError]]:
    """Ask each task's host how to enter it.

    `tasks` and `on` are as in planning/plan.py. Return the entrances, and the errors of
    hosts that give no answer, or have no directory of their task. Raises PlanError if no task is
    selected.
    """
    wanted: dict[str, list[Placement]] = {}
    for placement in select_placements(run.plan, tasks, on):
        wanted.setdefault(placement.host, []).append(placement)

    def ask(agent: Agent) -> list[Entrance]:
        return [_entrance(agent, run, placement) for placement in wanted[agent.host]]

    outcomes = fleet.outcomes(wanted, ask)
    return [*chain.from_iterable(answers_of(outcomes).values())], errors_of(outcomes)


def execute(
    inventory: Inventory, entrance: Entrance, words: Sequence[str], *, terminal: bool
) -> int:
    """Run a command as a task, with the controller's standard streams; return its exit code.

    Without words it is the user's shell. With `terminal` it gets a terminal of its host.
    """
    argv = _command_line(inventory, entrance, words, terminal=terminal)
    return foreground.run(entrance.placement.host, argv)


def execute_all(
    inventory: Inventory,
    entrances: Sequence[Entrance],
    words: Sequence[str],
    on_lines: Callable[[str, str, list[str]], None],
) -> list[TfdeployError]:
    """Run a command as each of the tasks, in parallel and without input.

    Call `on_lines(task, host, lines)` with what they print. Return an error for each that failed.
    """

    def run(entrance: Entrance) -> TfdeployError | None:
        task, host = str(entrance.placement.task), entrance.placement.host
        try:
            argv = _command_line(inventory, entrance, words, terminal=False)
            code = foreground.run_by_lines(host, argv, lambda lines: on_lines(task, host, lines))
        except TfdeployError as error:
            return error
        return TaskFailed(task, host, f"the command exited with {code}") if code else None

    return [error for error in call_each(run, entrances, THREADS) if error]


def _entrance(agent: Agent, run: Run, placement: Placement) -> Entrance:
    request = Enter(run.inventory.project, run.id, str(placement.task))
    answer: TaskEntrance = agent.ask(request)
    if not answer.words or any(not word.isprintable() for word in answer.words):
        raise AgentError(agent.host, f"invalid answer: the command {answer.words!r:.40}")
    return Entrance(placement, tuple(answer.words), answer.directory)


def _command_line(
    inventory: Inventory, entrance: Entrance, words: Sequence[str], *, terminal: bool
) -> list[str]:
    encoded = json.dumps(list(words)).encode()
    if len(encoded) > MAX_WORDS_BYTES:
        raise TaskFailed(
            str(entrance.placement.task),
            entrance.placement.host,
            f"the command has {len(encoded)} bytes; expected at most {MAX_WORDS_BYTES}",
            "send a script on its standard input: exec TASK -- sh < script.sh",
        )
    host = inventory.host(entrance.placement.host)
    argv = [*entrance.words, base64.b64encode(encoded).decode()]
    return foreground.command_line(host, inventory, argv, terminal=terminal)
