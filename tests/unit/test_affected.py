"""Which slow tests are left out because nothing of what they test has changed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from support import affected, order
from support.affected import GROUPS, ROOT, Group

RECIPES = Group(("tests/examples/", "tests/integration/test_digits"), ("examples/", "lock.txt"))


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with one group."""
    monkeypatch.setitem(GROUPS, "recipes", RECIPES)
    for file in ("examples/digits/train.py", "lock.txt", "tests/examples/test_a.py",
                 "tests/integration/test_digits_b.py", "tfdeploy/run.py"):  # fmt: skip
        write(tmp_path / file, "1")
    return tmp_path


def write(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def proved(project):
    return affected.proved({"recipes": affected.hashes(project)["recipes"]}, project / "proved")


def test_a_group_is_left_out_after_all_tests_passed_with_its_files(project):
    assert proved(project) == []
    affected.store(affected.hashes(project), project / "proved")
    assert proved(project) == ["recipes"]


@pytest.mark.parametrize(
    "file",
    ["examples/digits/train.py", "examples/new/train.py", "lock.txt", "tests/examples/test_a.py",
     "tests/integration/test_digits_b.py", "tests/integration/test_digits_c.py"],
)  # fmt: skip
def test_a_group_runs_if_a_file_has_changed_or_is_new(project, file):
    affected.store(affected.hashes(project), project / "proved")
    write(project / file, "2")
    assert proved(project) == []


def test_a_group_runs_if_a_file_is_gone_or_has_another_name(project):
    affected.store(affected.hashes(project), project / "proved")
    (project / "examples/digits/train.py").rename(project / "examples/digits/main.py")
    assert proved(project) == []


@pytest.mark.parametrize(
    "file",
    ["tfdeploy/run.py", "examples/digits/__pycache__/train.pyc", "examples/digits/runs/1/out.py",
     "examples/.venv/a.py", "examples/digits/task.log"],
)  # fmt: skip
def test_other_files_and_what_running_leaves_behind_count_for_nothing(project, file):
    affected.store(affected.hashes(project), project / "proved")
    write(project / file, "2")
    assert proved(project) == ["recipes"]


def test_a_group_that_was_added_since_runs(project):
    affected.store({"installs": "0123"}, project / "proved")
    assert proved(project) == []


def test_the_tests_of_a_group_are_left_out_and_named(project):
    items = [SimpleNamespace(nodeid=f"tests/{name}") for name in ("examples/test_a.py::test", "b")]
    left_out = affected.leave_out(["recipes"], items)
    assert [item.nodeid for item in left_out] == ["tests/examples/test_a.py::test"]
    assert [item.nodeid for item in items] == ["tests/b"]
    first, recipes, last = affected.report(["recipes"])
    assert first.startswith(f"left out: 1 of {len(GROUPS)} groups of slow tests, because neither ")
    assert recipes.startswith("  recipes: ")
    assert recipes.endswith("make test ONE='tests/examples/ tests/integration/test_digits*'")
    assert last == "  make nightly runs them all"
    assert affected.report([]) == []


@pytest.mark.parametrize("name", GROUPS)
def test_each_group_names_files_that_exist_and_slow_tests(name):
    group = GROUPS[name]
    assert [path for path in group.files if not (ROOT / path).exists()] == []
    costs = order.read()
    unknown = [start for start in group.tests if not any(test.startswith(start) for test in costs)]
    assert unknown == []
    assert len(affected.files(ROOT, group)) > 1
