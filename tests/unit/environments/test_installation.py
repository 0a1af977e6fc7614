"""The commands for tfdeploy's own environment fit the installer that made it."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import re
import sys
import sysconfig
import tomllib
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from tfdeploy.environments import installation
from tfdeploy.errors import RunError

CLONE = {"url": "file:///home/me/my%20clone", "dir_info": {}}
REPOSITORY = {"url": "https://host/tfdeploy.git", "vcs_info": {"vcs": "git", "commit_id": "f00d"}}


@pytest.fixture
def prefix(tmp_path, monkeypatch):
    """The folder of an environment whose Python has a space in its path."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/opt/my tools/bin/python")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / "lib"))
    return tmp_path


def installed_from(monkeypatch, source):
    text = source and json.dumps(source)
    monkeypatch.setattr(
        metadata, "distribution", lambda name: SimpleNamespace(read_text=lambda file: text)
    )


@pytest.mark.parametrize(
    ("file", "source", "command"),
    [
        ("uv-receipt.toml", CLONE,
         "uv tool install 'tfdeploy[tensorboard] @ file:///home/me/my%20clone'"),
        ("uv-receipt.toml", REPOSITORY,
         "uv tool install 'tfdeploy[tensorboard] @ git+https://host/tfdeploy.git'"),
        ("pipx_metadata.json", CLONE,
         "pipx install --force 'tfdeploy[tensorboard] @ file:///home/me/my%20clone'"),
        ("pipx_metadata.json", None, "pipx install --force 'tfdeploy[tensorboard]'"),
        ("pyvenv.cfg", CLONE, "'/opt/my tools/bin/python' -m pip install 'tfdeploy[tensorboard]'"),
    ],
)  # fmt: skip
def test_an_extra_is_added_by_the_installer(prefix, monkeypatch, file, source, command):
    (prefix / file).touch()
    installed_from(monkeypatch, source)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert installation.command_to_add("tensorboard") == command


def folder_spec(name):
    """Return what Python finds for a folder of this name without __init__.py."""
    return importlib.machinery.ModuleSpec(name, None, is_package=True)


@pytest.mark.parametrize("find_spec", [lambda name: None, folder_spec])
@pytest.mark.parametrize(
    ("extra", "package"),
    [("env", "uv"), ("plots", "matplotlib"), ("tensorboard", "TensorBoard"), ("watch", "Textual")],
)
def test_a_missing_extra_is_one_command_away(prefix, monkeypatch, find_spec, extra, package):
    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    with pytest.raises(RunError) as missing:
        installation.require(extra)
    assert str(missing.value) == (
        f"{package} is not installed beside tfdeploy\n"
        f"  '/opt/my tools/bin/python' -m pip install 'tfdeploy[{extra}]'"
    )


def test_an_extra_is_installed_with_those_that_are_there(prefix, monkeypatch):
    present = {"uv", "pip", "textual", "matplotlib"}  # of plots only a part
    monkeypatch.setattr(
        importlib.util, "find_spec",
        lambda name: SimpleNamespace(origin="") if name in present else None,
    )  # fmt: skip
    assert installation.command_to_add("tensorboard").endswith("'tfdeploy[env,tensorboard,watch]'")


def test_every_extra_of_the_package_is_known_and_all_has_each():
    project = tomllib.loads(Path(__file__).parents[3].joinpath("pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    assert extras["all"] == [f"tfdeploy[{','.join(sorted(installation.EXTRAS))}]"]
    for extra, packages in installation.EXTRAS.items():
        required = {re.match(r"[\w-]+", each)[0] for each in extras[extra]}
        assert required == {package.lower() for package in packages}


@pytest.mark.parametrize("extra", installation.EXTRAS)
def test_an_installed_extra_is_accepted(extra):
    installation.require(extra)
