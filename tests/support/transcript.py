"""Transcripts: files with commands as a user types them, and everything that they print.

    about: one line, for readers of the file
    project: examples/digits
    machines: gpu-01 gpu-02
    python: tensorflow-cpu

    $ tfdeploy run
    pushed release bb35c7989aa8c742 (75.8 kB) to this-machine
    ! note: a line on standard error
    [exit 1]

The first paragraph says what there is before the first command; see session.py. `NAME$ COMMAND`
runs a command on another machine than the laptop, and `% COMMAND` or `NAME% COMMAND` one that a
reader need not see: it must succeed, and what it prints is not stored. `^C after TEXT` before a
command presses Ctrl-C when it has printed TEXT, and `^NAME COMMAND after TEXT` runs another command
on a machine then.

What a file stores was printed like this once. Two recordings are the same if `normal` gives the
same: run names, sizes, times and other values that differ from run to run become a placeholder.
Lines of several tasks come in any order, and so do a task's states and its log, so they are grouped
by what they are about.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

PROMPT = re.compile(r"(?P<machine>[\w-]*)(?P<sign>[$%]) (?P<text>.+)")
MEANWHILE = re.compile(r"\^(?P<action>.+?) after (?P<text>.+)")
ERRORS = "! "
EXIT = re.compile(r"\[exit (\d+)\]")
RUN = re.compile(r"\b\d{8}-\d{6}-[0-9a-f]{4}\b")


@dataclass(frozen=True)
class Step:
    """A command and what it printed: lines of standard error begin with "! ". `meanwhile` is what
    happens when it has printed `after`: "C", or the name of a machine and a command."""

    machine: str
    text: str
    is_hidden: bool
    meanwhile: str = ""
    after: str = ""
    output: tuple[str, ...] = ()
    code: int = 0

    def lines(self) -> list[str]:
        meanwhile = [f"^{self.meanwhile} after {self.after}"] if self.meanwhile else []
        prompt = f"{self.machine}{'%' if self.is_hidden else '$'} {self.text}"
        code = [f"[exit {self.code}]"] if self.code else []
        return [*meanwhile, prompt, *self.output, *code]


@dataclass(frozen=True)
class Transcript:
    """A file's settings and steps."""

    settings: dict[str, str]
    steps: tuple[Step, ...] = field(default=())

    def text(self) -> str:
        head = "".join(f"{key}: {value}\n" for key, value in self.settings.items())
        return head + "".join("\n" + "\n".join(step.lines()) + "\n" for step in self.steps)

    def shown(self) -> Iterator[Step]:
        """Yield the steps that a reader sees."""
        return (step for step in self.steps if not step.is_hidden)


def read(file: Path) -> Transcript:
    """Read a transcript. Raises ValueError if a line is unknown."""
    head, _, rest = file.read_text().partition("\n\n")
    settings = dict(line.split(": ", 1) for line in head.splitlines())
    return Transcript(settings, tuple(_steps(rest.splitlines())))


def _steps(lines: Iterable[str]) -> Iterator[Step]:
    """An empty line before a command belongs to the file, and not to what was printed."""
    step, action, after = None, "", ""
    for line in lines:
        prompt, meanwhile = PROMPT.fullmatch(line), MEANWHILE.fullmatch(line)
        if prompt or meanwhile:
            if step:
                yield _without_last_empty_line(step)
            step = None
        if meanwhile:
            action, after = meanwhile["action"], meanwhile["text"]
        elif prompt:
            step = Step(prompt["machine"], prompt["text"], prompt["sign"] == "%", action, after)
            action, after = "", ""
        elif step is None:
            if line:
                raise ValueError(f"unknown line before a command: {line}")
        elif code := EXIT.fullmatch(line):
            step = replace(step, code=int(code[1]))
        else:
            step = replace(step, output=(*step.output, line))
    if step:
        yield step


def _without_last_empty_line(step: Step) -> Step:
    return replace(step, output=step.output[:-1]) if step.output[-1:] == ("",) else step


# What differs from run to run, by what is compared in place of it.
VALUES = tuple(
    (re.compile(pattern), value)
    for pattern, value in (
        (r"\b[0-9a-f]{64}\b|\b[0-9a-f]{16}\b|\b[0-9a-f]{12}\.ssh\b", "HASH"),
        (r"\bSHA256:[\w+/]{43}|\b0x[0-9a-f]{16}\b", "HASH"),
        (r"\d+(\.\d+)?/\d+ +\d+%", "LOAD MEMORY"),
        (r"(?<!at )(?<![\d.])\d+(\.\d+)? [MG]bit/s", "SPEED"),
        (r"\d+(\.\d+)? ?(B|kB|KiB|MB|MiB|GB|GiB|TB)\b", "SIZE"),
        (r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?Z?", "TIME"),
        (r"\b\d\d:\d\d:\d\d\b", "TIME"),
        (r"(?<!within )\b(\d+(h|min|m) ?\d+(min|m|s)|\d+(\.\d+)? ?(ms|s|min|m|h|d))\b", "TIME"),
        (r"\b(step|loss|pid|accuracy) -?\d[\d.e-]*", r"\1 N"),
        (r"ckpt-\d+", "ckpt-N"),
        (r"(?<![\d.])\d+\.\d+\.\d+(?!\.?\d)", "VERSION"),
        (r"(?<![\d.])\d+\.\d+(e[+-]?\d+)?%?(?!\.?\d)", "N"),  # no address
        (r"(?<!exit )(?<![\w.-])(?!22\d\d\b)\d{3,}(?![\w.])", "N"),  # not TensorFlow's ports
        (r"(?<=\S)(?<!^!) {2,}", "  "),  # the start of a line stays
        (r"\s+$", ""),
    )
)
HASHES = 2  # the first values, which are replaced in lines of logs, too
TASK = r"[a-z]+:\d+"
# A line about one task, about checkpoints, or about one output: such lines come in the order in
# which things happen, which differs for several of them.
ABOUT = re.compile(
    rf"(?:! )?(?:[A-Z]{{4,}} +(?P<state>{TASK})\s|(?P<log>{TASK})@\S+ \| "
    r"|(?P<file>checkpoint(?= /)|output /\S+))"
)
LOG_NUMBERS = re.compile(r"-?\d[\d.,e-]*")
# What is printed only if something takes long, or if it is seen before it passes.
PASSING = re.compile(
    r"! waiting for hosts? .*|! \S+: reading its checkpoints"
    rf"|(?:STARTING|RUNNING) +{TASK} +\S+(?:  pid \d+)?(?:  killed by \w+; restart \d+ of \d+)?"
    r"|(?:! )?(?:to )?\S+: [\d.]+ \w?B of [\d.]+ \w?B.*"
    rf"|READY +{TASK} +\S+  pid \d+  (?:trial \d+: \w+=[\d.]+|waits for a trial)"
)


def normal(transcript: Transcript) -> str:
    """Return the text that is the same for each recording of the same behaviour."""
    names: dict[str, str] = {}
    steps = [replace(step, output=tuple(_normal_output(step.output)))
             for step in transcript.shown()]  # fmt: skip
    text = "\n".join("\n".join(step.lines()) for step in steps)
    return RUN.sub(lambda run: names.setdefault(run[0], f"RUN-{len(names) + 1}"), text)


def difference(before: str, now: str) -> str:
    """Return what two normal texts differ in, for a person."""
    lines = difflib.unified_diff(
        before.splitlines(), now.splitlines(), "stored", "now", n=8, lineterm=""
    )
    return "\n".join(["make transcripts stores what is printed now", *lines])


def _normal_output(lines: Iterable[str]) -> Iterator[str]:
    groups: dict[str, list[str]] = {}
    for line in lines:
        if PASSING.fullmatch(line):
            continue
        about = ABOUT.match(line)
        key = " ".join(next(each for each in about.groupdict().items() if each[1])) if about else ""
        group = groups.setdefault(key, [])
        text = _normal_line(line, is_log=bool(about and about["log"]))
        # A program prints a step as often as it has time for.
        if not (about and (about["log"] or about["file"])) or text not in group[-1:]:
            group.append(text)
    for key in sorted(groups):
        yield from groups[key]


def _normal_line(line: str, *, is_log: bool) -> str:
    if is_log:
        prefix, bar, text = line.partition(" | ")
        return prefix + bar + _with_values(text, (*VALUES[:HASHES], (LOG_NUMBERS, "N")))
    return _with_values(line, VALUES)


def _with_values(text: str, values: Iterable[tuple[re.Pattern[str], str]]) -> str:
    """Replace values, except in names of runs."""
    runs = RUN.findall(text)
    text = RUN.sub("\0", text)
    for pattern, value in values:
        text = pattern.sub(value, text)
    for run in runs:
        text = text.replace("\0", run, 1)
    return text
