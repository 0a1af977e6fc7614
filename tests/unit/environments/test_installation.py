"""The commands for tfdeploy's own environment fit the installer that made it."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from tfdeploy.environments import installation
from tfdeploy.environments.installation import Installation

CLONE = {"url": "file:///home/me/my%20clone", "dir_info": {}}
REPOSITORY = {"url": "https://host/tfdeploy.git", "vcs_info": {"vcs": "git", "commit_id": "f00d"}}


def made(tmp_path, *, source=None, present=()):
    """Return an installation whose Python has a space in its path, with these packages."""
    return Installation(
        tmp_path, "/opt/my tools/bin/python", present.__contains__,
        lambda: source and json.dumps(source),
    )  # fmt: skip


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
def test_an_extra_is_added_by_the_installer(tmp_path, file, source, command):
    (tmp_path / file).touch()
    found = made(tmp_path, source=source)
    assert installation.command_to_add("tensorboard", found) == command


@pytest.mark.parametrize(
    ("extra", "package"),
    [("env", "uv"), ("plots", "matplotlib"), ("tensorboard", "TensorBoard"), ("watch", "Textual")],
)
def test_a_missing_extra_is_one_command_away(tmp_path, extra, package):
    assert str(installation.find_missing(extra, made(tmp_path))) == (
        f"{package} is not installed beside tfdeploy\n"
        f"  '/opt/my tools/bin/python' -m pip install 'tfdeploy[{extra}]'"
    )


def test_a_folder_with_the_name_of_a_package_is_no_package():
    folder = ModuleSpec("matplotlib", None, is_package=True)
    assert not installation.has_origin(folder)
    assert not installation.has_origin(None)


def test_an_extra_is_installed_with_those_that_are_there(tmp_path):
    found = made(tmp_path, present={"uv", "pip", "Textual", "matplotlib"})  # of plots only a part
    command = installation.command_to_add("tensorboard", found)
    assert command.endswith("'tfdeploy[env,tensorboard,watch]'")


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
