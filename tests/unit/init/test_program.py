"""The training script, and the modules of the user that it imports, are found in a folder."""

from __future__ import annotations

import pytest

from tfdeploy.errors import InventoryError
from tfdeploy.init import program

MAIN = "if __name__ == '__main__':\n    pass\n"


def write(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path = path.with_name(path.name + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("files", "script"),
    [
        ({"train": "", "main": "", "other": MAIN}, "train.py"),
        ({"main": "", "other": MAIN}, "main.py"),
        ({"fit": MAIN, "library": ""}, "fit.py"),
        ({"mnist": "import tensorflow"}, "mnist.py"),
        ({"digits": "import helpers", "helpers": MAIN}, "digits.py"),
        ({"a": f"import b\n{MAIN}", "b": f"import a\n{MAIN}", "c": ""}, "c.py"),
        ({"mnist": "import model", "model": "", "test_model": MAIN, "setup": MAIN}, "mnist.py"),
    ],
)
def test_the_script_is_found(tmp_path, files, script):
    write(tmp_path, **files)
    assert program.find(tmp_path, None).script == script


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "it has no Python script"),
        ({"test_a": MAIN, "a_test": MAIN, "conftest": ""}, "it has no Python script"),
        ({"a": MAIN, "b": MAIN}, "a.py, b.py could each be the training script"),
    ],
)
def test_several_scripts_or_none_are_refused(tmp_path, files, message):
    write(tmp_path, **files)
    with pytest.raises(InventoryError) as refused:
        program.find(tmp_path, None)
    assert (refused.value.message, refused.value.hint) == (
        f"{tmp_path}: {message}",
        "name it: --script FILE",
    )


def test_a_script_below_the_folder_keeps_its_path(tmp_path):
    write(tmp_path, src__fit="import helpers", src__helpers="")
    found = program.find(tmp_path, tmp_path / "src" / "fit.py")
    assert found.command == ("python", "src/fit.py")
    assert [*found.files] == ["src/fit.py", "src/helpers.py"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../x.py", "is outside of"),
        ("none.py", "there is no file"),
        ("a.ipynb", "is a notebook; expected a Python script"),
    ],
)
def test_a_script_elsewhere_or_a_notebook_is_refused(tmp_path, name, message):
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "x.py").touch()
    (folder / "a.ipynb").write_text('{"cells": []}')
    with pytest.raises(InventoryError, match=message):
        program.find(folder, folder / name)


def test_a_script_that_imports_from_the_folder_around_runs_as_a_module(tmp_path):
    (tmp_path / ".git").mkdir()
    write(tmp_path, pkg__train="import common, json", common="")
    found = program.find(tmp_path / "pkg", None)
    assert (found.source, found.command) == ("..", ("python", "-m", "pkg.train"))
    assert [*found.files] == ["pkg/train.py", "common.py"]


@pytest.mark.parametrize("mark", [None, "pkg/.git"])
def test_a_folder_around_another_repository_is_never_sent(tmp_path, mark):
    write(tmp_path, pkg__train="import common", common="")
    if mark:
        (tmp_path / mark).mkdir()
    assert program.find(tmp_path / "pkg", None).source == "."


def test_a_script_that_is_no_python_is_found(tmp_path):
    write(tmp_path, train="x = 1\nprint 'python 2'\n")
    assert program.find(tmp_path, None).unreadable.startswith("line 2: ")


def test_data_outside_of_the_folder_is_named_if_it_is_there(tmp_path, home):
    project = tmp_path / "project"
    (tmp_path / "data/mnist").mkdir(parents=True)
    (home / "datasets").mkdir()
    write(project, train="MNIST('../data/mnist'), '../none', '..', '/dev/null', '~'\nimport own",
          own='"""~/datasets"""\nopen("~/datasets/")')  # fmt: skip
    notes = [*program.data_outside(program.find(project, None), project)]
    assert [note.message for note in notes] == [
        "train.py names ../data/mnist, which is not sent to the hosts",
        "own.py names ~/datasets/, which is not sent to the hosts",
    ]
    hint = "if it is data: name it mnist in the script, and add [data.mnist] with path = "
    assert notes[0].hint == f'{hint}"../data/mnist"'


@pytest.mark.parametrize(
    ("text", "packages"),
    [
        ("import os, model", ("tensorflow",)),
        ("import cv2, yaml\nfrom sklearn import svm", (
            "tensorflow", "opencv-python-headless", "pyyaml", "scikit-learn")),
        ("import pandas\nimport tensorflow.compat.v1 as tf", ("tensorflow", "pandas")),
        ("import jax", ("jax",)),
        ("from google.protobuf import text_format", ("tensorflow", "protobuf")),
        ("from google.cloud import storage", ("tensorflow", "google-cloud-storage")),
        ("try:\n    import wandb\nexcept ImportError:\n    pass", ("tensorflow",)),
    ],
)  # fmt: skip
def test_the_packages_of_a_program_are_those_that_it_imports(tmp_path, text, packages):
    write(tmp_path, train=text, model="")
    assert program.find(tmp_path, None).packages == packages


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"requirements.txt": "", "pyproject.toml": ""}, "requirements.txt"),
        ({"uv.lock": "", "pyproject.toml": ""}, "uv.lock"),
        ({"pyproject.toml": "[project]\ndependencies = ['tensorflow']"}, "pyproject.toml"),
        ({"pyproject.toml": "[tool.ruff]"}, ""),
        ({}, ""),
    ],
)
def test_the_list_of_packages_is_found(tmp_path, files, expected):
    write(tmp_path, train="")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert program.find(tmp_path, None).requirements == expected


def test_virtual_environments_are_found_unless_they_hide_themselves(tmp_path):
    write(tmp_path, train="")
    for name in (".venv", "env", "hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pyvenv.cfg").touch()
    (tmp_path / "hidden" / ".gitignore").write_text("*")
    assert program.find(tmp_path, None).environments == (".venv/", "env/")
