"""What a program's framework decides: what `check` imports, and when its tasks are READY. Pure."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import TYPE_CHECKING

from tfdeploy.cluster import JOBS
from tfdeploy.shared.records import PROCESS, SERVER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tfdeploy.config.inventory import Training
    from tfdeploy.planning.plan import Plan

TENSORFLOW = "tensorflow"
FRAMEWORKS = (TENSORFLOW, "jax", "torch")
IMPORT = re.compile(rf"^[ \t]*(?:import|from)[ \t]+({'|'.join(FRAMEWORKS)})\b", re.MULTILINE)
SESSION = re.compile(r"\bMonitored(?:Training)?Session\b")
FIT = re.compile(r"\.fit\(")
TITLES = {TENSORFLOW: "TensorFlow"}


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
        if before == "-m":
            paths = list(accumulate(word.split("."), "{}/{}".format))
            yield from (f"{path}/__init__.py" for path in paths)
            yield from (f"{paths[-1]}.py", f"{paths[-1]}/__main__.py")
        elif word.endswith(".py"):
            yield word.removeprefix("./")


def imports_in(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the frameworks that scripts with these texts import: TensorFlow, unless they import
    only others. A script that imports none may do so through a module of its own."""
    found = {name for text in texts for name in IMPORT.findall(text)}
    return (TENSORFLOW,) if TENSORFLOW in found or not found else tuple(sorted(found))


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
