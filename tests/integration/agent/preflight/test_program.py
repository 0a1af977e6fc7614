"""A program is compiled, and its imports are tried, without running any of it."""

from __future__ import annotations

import sys

from tfdeploy.agent.preflight.program import try_program
from tfdeploy.shared.protocol.preflight import Statement


def test_what_can_not_be_compiled_or_imported_is_reported_with_its_place(tmp_path):
    (tmp_path / "noisy.py").write_text("print('noise')\nvalue = 1")
    (tmp_path / "broken.py").write_text("import nothing_of_this_name.x")
    (tmp_path / "deadly.py").write_text("import os\nos.abort()")
    sources = {
        "train.py": f"open({str(tmp_path / 'ran')!r}, 'w')",
        "a.py": "x = 1\nprint 'python 2'",
        "b.py": "x = '\0'",
    }
    statements = [
        Statement("train.py", line, text)
        for line, text in enumerate(
            ["import noisy", "from noisy import value", "from noisy import none", "import broken",
             "from os import *", "import deadly", "import never_reached"], 1)
    ]  # fmt: skip
    found = try_program(sys.executable, {"PYTHONPATH": str(tmp_path)}, sources, statements)
    assert [(each.file, each.line, each.missing) for each in found] == [
        ("a.py", 2, ""), ("b.py", 0, ""),
        ("train.py", 3, ""), ("train.py", 4, "nothing_of_this_name"), ("train.py", 6, ""),
    ]  # fmt: skip
    errors = [each.error for each in found]
    assert errors[0].startswith("SyntaxError: Missing parentheses")
    assert errors[2].startswith("ImportError: cannot import name 'none' from 'noisy'")
    assert errors[4] == "the import ended with SIGABRT"
    assert not (tmp_path / "ran").exists()


def test_a_python_that_can_not_be_run_is_the_error_of_the_framework(tmp_path):
    assert try_program(str(tmp_path / "python"), {}, {"a.py": ""}, []) == []
