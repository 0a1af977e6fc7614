"""What a program's framework decides: what `check` imports, and when its tasks are READY. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdeploy.agent.records import PROCESS, SERVER
from tfdeploy.cluster import JOBS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tfdeploy.config.inventory import Training
    from tfdeploy.planning.plan import Plan

TENSORFLOW = "tensorflow"
FRAMEWORKS = (TENSORFLOW, "jax", "torch")
IMPORT = re.compile(rf"^[ \t]*(?:import|from)[ \t]+({'|'.join(FRAMEWORKS)})\b", re.MULTILINE)
TITLES = {TENSORFLOW: "TensorFlow"}


def scripts(training: Training) -> list[str]:
    """Return the paths in the source at which the scripts may be that the commands run."""
    commands = (training.command_and_args(job)[0] for job in JOBS)
    return list(dict.fromkeys(word for command in commands for word in script_words(command)))


def script_words(command: Sequence[str]) -> Iterator[str]:
    """Yield the words that are Python files, and the files that the module after -m may be."""
    for before, word in zip(("", *command), command, strict=False):
        if before == "-m":
            path = word.replace(".", "/")
            yield from (f"{path}.py", f"{path}/__main__.py")
        elif word.endswith(".py"):
            yield word.removeprefix("./")


def imports_in(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the frameworks that scripts with these texts import: TensorFlow, unless they import
    only others. A script that imports none may do so through a module of its own."""
    found = {name for text in texts for name in IMPORT.findall(text)}
    return (TENSORFLOW,) if TENSORFLOW in found or not found else tuple(sorted(found))


def ready(training: Training, plan: Plan, job: str) -> str:
    """Return what makes a job's tasks READY. By default it is a TensorFlow server, which a program
    without TensorFlow does not have; and a task without peers needs none."""
    own: str | None = getattr(training, job).ready or training.ready
    alone = sum(map(len, plan.cluster.values())) == 1
    return own or (PROCESS if alone or not training.uses_tensorflow else SERVER)


def title(module: str) -> str:
    """Return the name of a module for people."""
    return TITLES.get(module, module)
