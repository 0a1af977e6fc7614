"""docs/python.md shows the functions as they can be called."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import tfdeploy

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
# Each call in the first column of a table, such as `prune(inventory, *, keep=5)`.
CELLS = [cell for cell in re.findall(r"^\| (`.*?`) \|", PAGE.read_text(), re.M) if "(" in cell]
CALLS = [call for cell in CELLS for call in re.findall(r"`([\w.]+\(.*?\))`", cell)]


def function(name):
    owner = tfdeploy
    for part in name.split("."):
        owner = getattr(owner, part, None) or getattr(tfdeploy.Run, part)
    return owner


def documented(arguments):
    namespace = {}
    exec(f"def shown({arguments}): ...", namespace)
    return inspect.signature(namespace["shown"]).parameters


def test_the_page_has_tables_of_functions_and_methods():
    assert {call.partition("(")[0] for call in CALLS} >= {"plan", "start", "status", "resume"}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_is_shown_as_it_can_be_written(call):
    name, _, rest = call.partition("(")
    actual = inspect.signature(function(name)).parameters
    for shown in documented(rest[:-1]).values():
        parameter = actual[shown.name]
        default = {} if parameter.default == {} else parameter.default
        assert (shown.kind, shown.default) == (parameter.kind, default)
    required = [p.name for p in actual.values() if p.default is p.empty and p.name != "self"]
    positional = [
        each for each in required if actual[each].kind is not inspect.Parameter.VAR_KEYWORD
    ]
    assert [each for each in positional if each not in documented(rest[:-1])] == []
