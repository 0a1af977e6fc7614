"""Which file of the source a command runs, and what reads it. Pure."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, NamedTuple

from tfdeploy.planning.frameworks import LAUNCHERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LINUX, PYTHON, MODULE, SHELL = "Linux", "python", "python -m", "a shell"
SHELLS = ("bash", "dash", "ksh", "sh", "zsh")
OWN_PYTHON = "{python}"  # stands for the Python of the task's host
PYTHONS = re.compile(r"python[\d.]*|\{python\}")
# Options whose value is the next word.
PYTHON_VALUES = re.compile(r"-[WX]|--check-hash-based-pycs")
SHELL_VALUES = re.compile(r"[-+][A-Za-z]*[oO]|--rcfile|--init-file")
LAUNCHER_MODULES = (*LAUNCHERS.values(), "torch.distributed.launch", "accelerate.commands.launch")
UNKNOWN = re.compile(r"[/~]|.*[{$*?\[]")  # paths of a host, and names that are not final


class CommandFile(NamedTuple):
    """A file of the source, or for MODULE the name of a module, that `reader` reads: LINUX itself
    executes a program such as ./run.sh."""

    path: str
    reader: str


def of_command(command: Sequence[str]) -> CommandFile | None:
    """Return the file that a command runs; None if it runs none of the source, as far as can be
    known: other programs may start scripts anywhere."""
    start = command.index(OWN_PYTHON) if OWN_PYTHON in command else 0
    found = _of_program(*command[start:]) if command else None
    return None if found is None or UNKNOWN.match(found.path) else found


def _of_program(program: str, *words: str) -> CommandFile | None:
    name = posixpath.basename(program)
    if PYTHONS.fullmatch(name):
        return _of_python(words)
    if name in SHELLS:
        return _of_shell(words)
    if name in LAUNCHERS:
        return _of_launcher(words)
    return CommandFile(program, LINUX) if "/" in program else None


def _of_python(words: Sequence[str]) -> CommandFile | None:
    for at, word in _words(words, PYTHON_VALUES):
        if not word.startswith("-"):
            return CommandFile(word, PYTHON)
        if word == "-m" and words[at + 1 :]:
            module, *rest = words[at + 1 :]
            return _of_launcher(rest) if module in LAUNCHER_MODULES else CommandFile(module, MODULE)
        if word == "-" or re.match(r"-[A-Za-z]*[cm]", word):  # text, or an unusual spelling
            return None
    return None


def _of_shell(words: Sequence[str]) -> CommandFile | None:
    for _, word in _words(words, SHELL_VALUES):
        if word[:1] not in ("-", "+"):
            return CommandFile(word, SHELL)
        if re.match(r"-[A-Za-z]*[cs]", word):  # text: it may change the folder, or make the file
            return None
    return None


def _of_launcher(words: Sequence[str]) -> CommandFile | None:
    """Return the script of torchrun or accelerate: the values of their many options do not end with
    .py."""
    for before, word in zip(("", *words), words, strict=False):
        if before in ("-m", "--module"):
            return CommandFile(word, MODULE)
        if word.endswith(".py") and not word.startswith("-"):
            return CommandFile(word, PYTHON)
    return None


def _words(words: Sequence[str], has_value: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yield the words with their positions, without the values of options."""
    at = 0
    while at < len(words):
        yield at, words[at]
        at += 2 if has_value.fullmatch(words[at]) else 1
