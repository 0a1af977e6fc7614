"""What a program's framework decides: what `check` imports, and when its tasks are READY. Pure."""

from __future__ import annotations

import re
import shlex
from itertools import accumulate
from typing import TYPE_CHECKING

from tfdeploy.cluster import JOBS
from tfdeploy.shared.records import PROCESS, SERVER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tfdeploy.config.inventory import Training
    from tfdeploy.planning.plan import Plan

TENSORFLOW = "tensorflow"
# Each framework, by the packages that are imported for it.
FRAMEWORKS = {
    **{name: name for name in (TENSORFLOW, "jax", "torch")},
    **dict.fromkeys(("lightning", "pytorch_lightning", "accelerate", "deepspeed"), "torch"),
    **dict.fromkeys(("torchvision", "transformers"), "torch"),
    **dict.fromkeys(("flax", "haiku", "equinox"), "jax"),
}
IMPORT = re.compile(r"^[ \t]*(?:import[ \t]+([\w., \t]+)|from[ \t]+(\w+))", re.MULTILINE)
SESSION = re.compile(r"\bMonitored(?:Training)?Session\b")
JOIN = re.compile(r"server\w*(?:\(.*\))?\.join\(\)", re.IGNORECASE)
FIT = re.compile(r"\.fit\(")
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


def imports_in(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the frameworks that scripts with these texts import: TensorFlow, unless they import
    only others. A script that imports none may do so through a module of its own."""
    names = (name for text in texts for match in IMPORT.finditer(text) for name in _names(match))
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


def how_to_lose_less(training: Training, texts: Sequence[str]) -> str:
    """Return what lets scripts with these texts lose less at a stop; "" if they save when it comes,
    as far as their texts show."""
    if any(map(SESSION.search, texts)):
        is_set = training.save_on_stop
        return "" if is_set else "with save_on_stop = true, its session saves before it exits"
    if any(map(FIT.search, texts)):
        return "keras.callbacks.ModelCheckpoint with save_freq=STEPS saves within an epoch, too"
    if any("SIGTERM" in text or "PreemptionCheckpointHandler" in text for text in texts):
        return ""
    return f"a script that saves on SIGTERM has stop_grace_s = {training.stop_grace_s:g} s for it"


def ready(training: Training, plan: Plan, job: str) -> str:
    """Return what makes a job's tasks READY. By default it is a TensorFlow server, which a program
    without TensorFlow does not have; and a task without peers needs none."""
    own: str | None = getattr(training, job).ready or training.ready
    alone = sum(map(len, plan.cluster.values())) == 1
    return own or (PROCESS if alone or not training.uses_tensorflow else SERVER)


def title(module: str) -> str:
    """Return the name of a module for people."""
    return TITLES.get(module, module)
