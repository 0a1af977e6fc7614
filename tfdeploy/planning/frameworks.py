"""What a program's framework decides: what `check` imports, and when its tasks are READY. Pure."""

from __future__ import annotations

import posixpath
import re
import shlex
from itertools import accumulate
from typing import TYPE_CHECKING

from tfdeploy.config import WORKER_VARIABLES
from tfdeploy.config.cluster import JOBS
from tfdeploy.shared.records import PROCESS, RENDEZVOUS, SERVER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tfdeploy.config.inventory import Training
    from tfdeploy.planning.plan import Placement, Plan

TENSORFLOW = "tensorflow"
# Each framework, by the packages that are imported for it.
FRAMEWORKS = {
    **{name: name for name in (TENSORFLOW, "jax", "torch")},
    **dict.fromkeys(("lightning", "pytorch_lightning", "accelerate", "deepspeed"), "torch"),
    **dict.fromkeys(("torchvision", "transformers"), "torch"),
    **dict.fromkeys(("flax", "haiku", "equinox"), "jax"),
}
# Programs that start PyTorch's processes, by the modules that they run.
LAUNCHERS = {
    "torchrun": "torch.distributed.run",
    "accelerate": "accelerate.commands.accelerate_cli",
}
IMPORT = re.compile(r"^[ \t]*(?:import[ \t]+([\w., \t]+)|from[ \t]+(\w+))", re.MULTILINE)
JOIN = re.compile(r"server\w*(?:\(.*\))?\.join\(\)", re.IGNORECASE)
TITLES = {TENSORFLOW: "TensorFlow", "torch": "PyTorch", "jax": "JAX"}


def scripts(training: Training) -> list[str]:
    """Return the paths in the source at which the scripts may be that the commands run."""
    commands = (training.command_and_args(job)[0] for job in JOBS)
    return list(dict.fromkeys(word for command in commands for word in script_words(command)))


def notebooks(training: Training) -> list[str]:
    """Return the paths in the source at which the notebooks may be that the commands run."""
    commands = (training.command_and_args(job)[0] for job in JOBS)
    words = (word.removeprefix("./") for command in commands for word in command)
    return [w for w in dict.fromkeys(words) if w.endswith(".ipynb") and not w.startswith("/")]


def script_words(command: Sequence[str]) -> Iterator[str]:
    """Yield the words that are Python files, and the files that the module after -m may be, with
    its packages."""
    for before, word in zip(("", *command), command, strict=False):
        if before == "-c" and " " in word:  # a line for a shell
            yield from script_words(_shell_words(word))
        elif before == "-m":
            paths = list(accumulate(word.split("."), "{}/{}".format))
            yield from (f"{path}/__init__.py" for path in paths)
            yield from (f"{paths[-1]}.py", f"{paths[-1]}/__main__.py")
        elif word.endswith(".py"):
            yield word.removeprefix("./")


def _shell_words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # an open quote
        return line.split()


def launchers(training: Training) -> list[str]:
    """Return which programs that start PyTorch's processes the commands name."""
    words = (word for job in JOBS for word in training.command_and_args(job)[0])
    names = {module: name for name, module in LAUNCHERS.items()}
    found = (names.get(word, posixpath.basename(word)) for word in words)
    return [name for name in dict.fromkeys(found) if name in LAUNCHERS]


def imports_in(texts: Iterable[str], training: Training) -> tuple[str, ...]:
    """Return the frameworks that scripts with these texts import, or that the commands name:
    TensorFlow, unless they have only others. A script that imports none may do so through a module
    of its own."""
    names = [name for text in texts for match in IMPORT.finditer(text) for name in _names(match)]
    names += ["torch"] if launchers(training) else []
    found = {FRAMEWORKS[name] for name in names if name in FRAMEWORKS}
    return (TENSORFLOW,) if TENSORFLOW in found or not found else tuple(sorted(found))


def _names(statement: re.Match[str]) -> list[str]:
    """Return the top packages that a statement names."""
    several, one = statement.groups()
    return [one] if one else [re.split(r"[.\s]", name.strip())[0] for name in several.split(",")]


def has_waiting_workers(texts: Iterable[str]) -> bool:
    """Return whether a script with one of these texts has workers that only wait for the sessions
    of others, until they are stopped: they call `join` of their tf.distribute.Server."""
    return any(map(JOIN.search, texts))


def ready(training: Training, plan: Plan, placement: Placement) -> str:
    """Return what makes a task READY. By default it is a TensorFlow server, which a program without
    TensorFlow does not have; if that gets the chief's port, its tasks meet there. A task without
    peers needs none, and a slot of trials has no port."""
    if not plan.cluster:
        return PROCESS
    job = placement.task.job
    chosen = getattr(training, job).ready or training.ready
    if chosen:
        return str(chosen)
    if sum(map(len, plan.cluster.values())) == 1:
        return PROCESS
    if training.role not in WORKER_VARIABLES and training.uses_tensorflow:
        return SERVER
    return RENDEZVOUS if placement.task.in_cluster and _gets_port(training, job) else PROCESS


def _gets_port(training: Training, job: str) -> bool:
    """Return whether a program learns the chief's port."""
    command, args = training.command_and_args(job)
    _, variables = training.env_and_role_env(job)
    texts = (*command, *args, *variables.values())
    return training.role in WORKER_VARIABLES or any("{chief_port}" in text for text in texts)


def title(module: str) -> str:
    """Return the name of a module for people."""
    return TITLES.get(module, module)
