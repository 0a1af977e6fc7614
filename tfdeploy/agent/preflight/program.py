"""Compile a program's text with the tasks' Python, and import what it imports. Nothing of the
program itself is run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import Dict, Iterator, List

from ...shared.protocol.message import parse
from ...shared.protocol.preflight import ProgramError, Statement
from ...shared.protocol.record import to_json
from ..runs.start_checks import expand_home

IMPORT_S = 120.0
# Each error is one line of JSON. What the imports print goes nowhere. Each import is announced,
# because a library may end the process.
PROBE = """
import json, os, sys
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
sources, statements = json.loads(sys.stdin.read())
def report(file, line, error, missing=""):
    found = {"file": file, "line": line, "error": error, "missing": missing}
    out.write(json.dumps(found) + "\\n")
    out.flush()
def words(error):
    return "{}: {}".format(type(error).__name__, getattr(error, "msg", None) or error)
for file in sorted(sources):
    try:
        compile(sources[file], file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        report(file, getattr(error, "lineno", 0) or 0, words(error))
for each in statements:
    report(each["file"], each["line"], "")
    try:
        exec(each["text"], {})
    except BaseException as error:
        missing = getattr(error, "name", "") if isinstance(error, ModuleNotFoundError) else ""
        report(each["file"], each["line"], words(error), missing or "")
report("", 0, "")
os._exit(0)
"""


def try_program(
    python: str, env: Dict[str, str], sources: Dict[str, str], statements: List[Statement]
) -> List[ProgramError]:
    """Return what keeps a program from starting: the files in `sources`, texts by their paths, that
    are not Python of this version, and the imports in `statements` that fail."""
    if not sources and not statements:
        return []
    try:
        done = subprocess.run(
            [expand_home(python), "-c", PROBE],
            input=json.dumps([sources, [to_json(each) for each in statements]]).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **env, "TF_CPP_MIN_LOG_LEVEL": "3"},
            cwd="/",  # Python imports the files of its current folder before all others
            timeout=IMPORT_S,
        )
    except (OSError, subprocess.TimeoutExpired):  # as the import of the framework, which says it
        return []
    return [*_errors(done.stdout, "the import ended with {}".format(exit_name(done.returncode)))]


def _errors(output: bytes, end: str) -> Iterator[ProgramError]:
    """Yield the errors of a probe; `end` is that of the import that ended the process."""
    last = None
    for line in output.decode(errors="replace").splitlines():
        try:
            last = parse(ProgramError, json.loads(line))
        except ValueError:
            continue
        if last.error:
            yield last
    if last is not None and last.file and not last.error:
        yield ProgramError(last.file, last.line, end, "")


def exit_name(code: int) -> str:
    """Return `exit 3`, or a signal's name. SIGILL: TensorFlow was built for a newer processor."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return "exit {}".format(code)
