"""Each name of a class stands for one thing in the whole tree."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import tfdeploy

PACKAGE = Path(tfdeploy.__file__).parent
# `import tfdeploy` has a Run and an Inventory of its own. This list only gets shorter.
TWICE = {"Inventory", "Run"}


def class_names(file):
    """Return the names of classes; one that is defined again for type checkers counts once."""
    nodes = ast.walk(ast.parse(file.read_text()))
    return {node.name for node in nodes if isinstance(node, ast.ClassDef)}


def test_two_files_define_no_class_of_the_same_name():
    names = Counter(name for file in PACKAGE.rglob("*.py") for name in class_names(file))
    assert {name for name, count in names.items() if count > 1} == TWICE
