"""tfdeploy as uv, pipx and pip install it, small and without compiled modules: Python compiles them
in use, also in the connection daemon."""

from __future__ import annotations

import marshal
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.projects import environment
from support.waiting import until

from integration.test_package import build, copy_sources

pytestmark = pytest.mark.slow
BIN = Path(sys.executable).parent
OLD_LIMIT = 64 << 10  # earlier versions cut modules off that were larger
CORE_BYTES = 60 << 20  # at most, with compiled modules
REPORT = ("report", "absent", "--offline")
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


@dataclass
class Install:
    """An environment with tfdeploy, the command that it provides, and the user's variables."""

    folder: Path
    program: Path
    variables: dict[str, str]

    def run(self, project, code, *command, **variables):
        """Run a command that exits with this code, as the user of this installation."""
        done = subprocess.run(
            command, cwd=project.folder,
            env={**environment(project.folder), **self.variables, **variables},
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def push(self, project):
        self.run(project, 0, self.program, "push")

    @property
    def compiled(self):
        return [file for file in self.folder.rglob("*.pyc") if "site-packages" in file.parts]

    @property
    def size(self):
        """The bytes of all files, without those of pip, which venv puts into an environment."""
        files = (file for file in self.folder.rglob("*") if "pip" not in file.parts)
        return sum(
            file.stat().st_size for file in files if file.is_file() and not file.is_symlink()
        )

    @property
    def daemons(self):
        return list(Path(self.variables["XDG_RUNTIME_DIR"]).glob("tfdeploy/*.sock"))


def by_uv(folder, wheel, variables):
    own = {"UV_TOOL_DIR": f"{folder}/tools", "UV_TOOL_BIN_DIR": f"{folder}/bin"}
    command = [BIN / "uv", "tool", "install", "--python", sys.executable, wheel]
    subprocess.run(command, env={**os.environ, **variables, **own}, check=True)
    return Install(folder / "tools", folder / "bin" / "tfdeploy", own)


def by_pipx(folder, wheel, variables):
    own = {"PIPX_HOME": f"{folder}/home", "PIPX_BIN_DIR": f"{folder}/bin"}
    command = [sys.executable, "-m", "pipx", "install", "--python", sys.executable, wheel]
    own |= {"PIP_NO_COMPILE": "1"}  # pipx installs with uv, which compiles nothing, or with pip
    subprocess.run(command, env={**os.environ, **variables, **own}, check=True)
    return Install(folder / "home", folder / "bin" / "tfdeploy", own)


def by_pip(folder, wheel, variables):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    command = [*PIP, "--python", folder / "bin" / "python", "install", "--no-compile", "pip", wheel]
    subprocess.run(command, env={**os.environ, **variables}, check=True)
    return Install(folder, folder / "bin" / "tfdeploy", {})


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(copy_sources(tmp_path_factory.mktemp("build") / "source", 1), "wheel")


@pytest.fixture(scope="module")
def wheels(wheel, tmp_path_factory):
    """The variables with which installers use only what was downloaded."""
    folder = tmp_path_factory.mktemp("wheels")
    command = [*PIP, "download", "-q", "-d", folder, "pip", f"{wheel}[plots]"]
    subprocess.run(command, check=True)
    return {
        **dict.fromkeys(("PIP_NO_INDEX", "UV_NO_INDEX", "UV_OFFLINE"), "1"),
        **dict.fromkeys(("PIP_FIND_LINKS", "UV_FIND_LINKS"), f"{folder}"),
    }


@pytest.mark.parametrize("by", [by_uv, by_pipx, by_pip])
def test_an_install_compiles_itself_stays_small_and_gets_a_missing_extra_by_one_command(
    by_ssh, tmp_path, tmp_path_factory, wheel, wheels, by
):
    made = by(tmp_path / "made", wheel, wheels)
    runtime = tmp_path_factory.mktemp("r")  # the path of a socket must be short
    made.variables |= {"XDG_RUNTIME_DIR": f"{runtime}", "PYTHONDONTWRITEBYTECODE": ""}
    assert made.compiled == []
    project = by_ssh.project(top={"keep_connections_s": 0.5})
    made.push(project)
    assert made.daemons
    until(lambda: not made.daemons, "the end of the daemon")
    assert max(file.stat().st_size for file in made.compiled) > OLD_LIMIT
    for file in made.compiled:
        marshal.loads(file.read_bytes()[16:])
    made.push(project)
    assert made.size < CORE_BYTES

    message, hint = made.run(project, 2, made.program, *REPORT).stderr.splitlines()
    assert message == "error: matplotlib is not installed beside tfdeploy"
    variables = {**wheels, "PIPX_DEFAULT_PYTHON": sys.executable, "UV_PYTHON": sys.executable}
    made.run(project, 0, *shlex.split(hint), PATH=f"{BIN}:{os.environ['PATH']}", **variables)
    assert "absent" in made.run(project, 2, made.program, *REPORT).stderr
