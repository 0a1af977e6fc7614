"""docs/json.md and docs/schemas/ are made from the classes that --json prints, and have every
command; docs/hosts-toml.md has every key."""

from __future__ import annotations

import inspect
import runpy
import sys
from pathlib import Path

import jsonschema
import pytest
from support import json_documents

from tfdeploy import cli
from tfdeploy.output.documents import classes

DOCS = Path(__file__).parents[3] / "docs"
CLASSES = classes()
sys.path.append(str(DOCS))  # of generate.py, which is no module of a package
FILES = runpy.run_path(str(DOCS / "generate.py"))["files"]()


def commands_with_json():
    callbacks = [command.callback for command in cli.app.registered_commands]
    return [each.__name__ for each in callbacks if "json" in inspect.signature(each).parameters]


def test_each_file_is_as_make_schemas_writes_it():
    assert [file for file in FILES if file.read_text() != FILES[file]] == []


def test_no_other_schema_is_stored():
    assert {*(DOCS / "schemas").iterdir()} == {file for file in FILES if file.suffix == ".json"}


def test_every_command_with_json_has_a_document():
    assert sorted(commands_with_json()) == sorted({*CLASSES} - {"error"})


@pytest.mark.parametrize("name", CLASSES)
def test_every_key_has_a_meaning(name):
    schema = FILES[DOCS / "schemas" / f"{name}.json"]
    assert '"description": null' not in schema
    table = json_documents.validator(name).schema
    tables = [table, *table.get("$defs", {}).values()]
    assert all(value.get("description") for each in tables for value in each["properties"].values())


def test_a_key_that_is_not_documented_fails_a_test():
    json_documents.check_output(("plan",), "text", 0)
    line = '{"task": "ps:0", "host": "a", "line": ""}'
    json_documents.check_output(("logs", "--json"), f"{line}\n{line}\n", 0)
    with pytest.raises(jsonschema.ValidationError, match="'more' was unexpected"):
        json_documents.check_output(("logs", "--json"), line.replace("}", ', "more": 1}'), 0)
