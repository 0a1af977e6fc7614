"""Compare what commands print with --json with the schemas in docs/schemas/."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
WITHOUT_DOCUMENT = (2, 130)  # wrong options, and Ctrl-C


def check_output(words: tuple[str, ...], stdout: str, exit_code: int, stderr: str = "") -> None:
    """Fail unless a command printed what docs/json.md says; `words` are its arguments."""
    options = words[: words.index("--")] if "--" in words else words
    if "--json" not in options or (exit_code in WITHOUT_DOCUMENT and not stdout):
        return
    has_lines = words[0] in ("logs", "watch")
    assert stdout or has_lines, f"nothing on standard output, exit code {exit_code}\n{stderr}"
    documents = [json.loads(line) for line in stdout.splitlines()] if has_lines else None
    for document in [json.loads(stdout)] if documents is None else documents:
        is_failure = exit_code != 0 and {*document} == {"error", "errors"}
        command = "start" if "--queue" in options else words[0]  # nothing else of a `run` is known
        validator("error" if is_failure else command).validate(document)


@cache
def validator(name: str) -> Draft202012Validator:
    """Return a validator that also refuses keys that are not in the schema: programs must ignore
    them, but the documentation must have them."""
    schema = json.loads((SCHEMAS / f"{name}.json").read_text())
    Draft202012Validator.check_schema(schema)
    _close(schema)
    return Draft202012Validator(schema)


def _close(schema: dict[str, Any]) -> None:
    for table in (schema, *schema.get("$defs", {}).values()):
        table["additionalProperties"] = False
