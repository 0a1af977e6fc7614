"""Train a recipe with the tasks that tfdeploy plans for it, as forks of an imported TensorFlow.

Each task has the words, the variables, the patches and the directory that its supervisor would give
it. There is no agent and no supervisor: this waits for the chief, and ends what is left.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from support import warm
from support.ports import free_ports
from support.recipes import RecipeRun, copied_to
from support.waiting import until

import tfdeploy
from tfdeploy.agent.releases import work_directory
from tfdeploy.agent.supervision import spawn
from tfdeploy.config import inventory as inventories
from tfdeploy.config.overrides import override
from tfdeploy.planning import launch, placing
from tfdeploy.planning.roles import RunNames

if TYPE_CHECKING:
    from support.warm import Script

    from tfdeploy.shared.records import Launch

AGENT = Path(tfdeploy.__file__).parent  # where the folder inside/ is


def train(
    recipe: str, folder: Path, *, hosts: str = "hosts.toml", words: tuple[str, ...] = ()
) -> RecipeRun:
    """Train until the chief has succeeded; `words` are added to the recipe's command."""
    copy = copied_to(folder)
    tasks_folder = folder / f"{recipe}-{time.monotonic_ns()}"
    source, launches = plan(copy / recipe / hosts, words)
    [chief] = [each.task for each in launches if each.is_chief]
    tasks = {each.task: start(each, source, tasks_folder) for each in launches}
    try:
        wait_for_the_chief(tasks, chief)
        wait_for_the_others(tasks, launches)
        states = {task: state_of(script) for task, script in tasks.items()}
    finally:
        for script in tasks.values():
            script.kill()
    printed = {task: script.errors + script.output for task, script in tasks.items()}
    assert set(states.values()) <= {"SUCCEEDED", "STOPPED"}, (states, printed)
    collected = tasks_folder / chief.replace(":", "-") / "work"
    (collected / "logs").mkdir()
    for task, text in printed.items():
        (collected / "logs" / f"{task.replace(':', '-')}.log").write_text(text)
    ended = RecipeRun(recipe, copy, states, collected)
    ended.check_page()
    return ended


def plan(hosts: Path, words: tuple[str, ...]) -> tuple[Path, tuple[Launch, ...]]:
    """Return the source and the launches of the tasks, on ports that no other test uses."""
    read = override(inventories.load(hosts), words, ())
    [host] = read.hosts
    with_ports = host.copy_with({"ports": tuple(free_ports(8))})
    read = read.copy_with({"hosts": (with_ports,)})
    placed = placing.make_plan(read, {host.name: "localhost"})
    return read.source_root, launch.make(read, placed, RunNames("run", "release"), "secret")


def start(task: Launch, source: Path, folder: Path) -> Script:
    """Start a task in a directory of its own, which has a copy of the source."""
    task_dir = folder / task.task.replace(":", "-")
    work = task_dir / "work"
    shutil.copytree(source, work)
    work_directory.write_files(task, str(work))
    work_directory.make_links(task, str(work))
    task = task.in_directory(str(work))
    _, *words = task.process.argv  # after the name of Python
    env = spawn.environment(task, dict(os.environ), "", str(AGENT), str(task_dir))
    return warm.start(*words, cwd=work, **env)


def wait_for_the_chief(tasks: dict[str, Script], chief: str) -> None:
    """Wait until the chief has ended, or another task has failed."""

    def ended() -> bool:
        return tasks[chief].poll() is not None or any(s.poll() for s in tasks.values())

    until(ended, f"the end of {chief}", lambda: [s.output + s.errors for s in tasks.values()])


def wait_for_the_others(tasks: dict[str, Script], launches: tuple[Launch, ...]) -> None:
    """Give them the time that their supervisors would: a ps never ends by itself."""
    ended_at = time.monotonic()
    for each in launches:
        if each.job == "ps":
            continue
        linger_s = each.limits.linger_s
        end = math.inf if linger_s is None else ended_at + linger_s
        while tasks[each.task].poll() is None and time.monotonic() < end:
            time.sleep(0.05)


def state_of(script: Script) -> str:
    """Return the state that its supervisor would report after it has ended what is left."""
    return {None: "STOPPED", 0: "SUCCEEDED"}.get(script.poll(), "FAILED")
