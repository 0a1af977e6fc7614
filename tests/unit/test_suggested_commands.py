"""Commands that are suggested can be pasted: names in them are quoted, or need no quotes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import tfdeploy

PACKAGE = Path(tfdeploy.__file__).parent
# The end of a command line into which something is inserted.
COMMAND = re.compile(
    r"(?:^|[\s:(`])(?:tfdeploy (?!itself)[a-z]+|ssh|ssh-keygen|scp|cd|cp"
    r"|mv|rm|source|chmod|mkdir|--[\w-]+)"
    r"(?: (?!writes)[^;,:.]*)? $"
)
QUOTES = ("quote_path", "quote_word", "shlex.quote", "shlex.join")
# Options that are quoted where they are made, names of tasks and hosts, ids of runs, and numbers:
# their characters are checked where they are read.
PLAIN = re.compile(
    r"(.*\.)?(flags|file_flag|task|run\.id|run_id|id)|hosts_flag\(.*\)|self\.id|host|counts|missing\[0\]|[A-Z_]+|copy|code|results\[0\]\.run"
)


def _insertions(file):
    """Yield (line, what is inserted) of the file's f-strings that suggest a command."""
    lines = file.read_text().splitlines()
    nodes = [*ast.walk(ast.parse("\n".join(lines)))]
    quoted = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign)
        and any(q in "\n".join(lines[node.lineno - 1 : node.end_lineno]) for q in QUOTES)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in nodes:
        text = ""
        for part in node.values if isinstance(node, ast.JoinedStr) else ():
            if isinstance(part, ast.FormattedValue):
                if COMMAND.search(text) and (inserted := ast.unparse(part.value)) not in quoted:
                    yield node.lineno, inserted
                text += "X"
            elif isinstance(part, ast.Constant):
                text += part.value


def test_what_a_suggested_command_names_is_quoted():
    offenders = [
        f"{file.relative_to(PACKAGE)}:{line}: {inserted}"
        for file in sorted(PACKAGE.rglob("*.py"))
        for line, inserted in _insertions(file)
        if not (inserted.startswith(QUOTES) or PLAIN.fullmatch(inserted))
    ]
    assert offenders == []
