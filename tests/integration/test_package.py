"""The packages for a release: complete, the same bytes wherever they are built, and installable."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.command_line import REAL

ROOT = Path(__file__).parents[2]
SOURCES = (
    *("tfdeploy", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "hosts.example.toml"),
    ".gitignore",
)
# Other tests compile modules at the same time: temporary files in __pycache__ may disappear.
WITHOUT_COMPILED = shutil.ignore_patterns("__pycache__")
NOT_PYTHON = (
    *("hosts.example.toml", "py.typed", "inside/preload/x86_64.so", "inside/preload/aarch64.so"),
    "branches/measuring/run_report/templates/page.html",
    "branches/measuring/run_report/templates/parts.html",
    "branches/measuring/run_report/templates/style.css",
    "inside/preload/sockets.c",
)

HOSTS = """
project = "p"
source.path = "."
[training]
command = "python train.py"
[hosts.here]
transport = "local"
workers = 1
"""


def copy_sources(folder, mtime):
    """Copy what a package is built from; all files of the copy have the same time."""
    folder.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=WITHOUT_COMPILED)
        else:
            shutil.copyfile(ROOT / name, folder / name)
    for file in folder.rglob("*"):
        os.utime(file, (mtime, mtime), follow_symlinks=False)
    return folder


def build(source, kind):
    """Build an "sdist" or a "wheel" in its own process, as pip does; return its file."""
    code = f"from hatchling import build; print(build.build_{kind}('dist'))"
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=source, capture_output=True, text=True,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"},
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    return source / "dist" / process.stdout.splitlines()[-1]


def test_the_wheel_has_everything_and_is_reproducible(tmp_path):
    wheels = [build(copy_sources(tmp_path / f"{mtime}", mtime), "wheel") for mtime in (1, 10**9)]
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    with zipfile.ZipFile(wheels[0]) as archive:
        for name in NOT_PYTHON:
            assert archive.read(f"tfdeploy/{name}") == (ROOT / "tfdeploy" / name).read_bytes()
        [license_file] = [name for name in archive.namelist() if name.endswith("/LICENSE")]
        assert archive.read(license_file) == (ROOT / "LICENSE").read_bytes()
        packed = {name for name in archive.namelist() if name.endswith(".py")}
    written = (ROOT / "tfdeploy").rglob("*.py")
    assert packed == {file.relative_to(ROOT).as_posix() for file in written}


@pytest.mark.slow
def test_the_wheel_of_an_sdist_is_the_same_and_can_be_installed(tmp_path):
    source = copy_sources(tmp_path / "source", 1)
    sdist, wheel = build(source, "sdist"), build(source, "wheel")
    subprocess.run(["tar", "-xf", sdist, "-C", tmp_path], check=True)
    unpacked = tmp_path / sdist.name.removesuffix(".tar.gz")
    assert build(unpacked, "sdist").read_bytes() == sdist.read_bytes()
    assert build(unpacked, "wheel").read_bytes() == wheel.read_bytes()
    installed = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--target", installed, wheel], check=True)
    assert tfdeploy(installed, "example", cwd=tmp_path) == (ROOT / "hosts.example.toml").read_text()
    (tmp_path / "hosts.toml").write_text(HOSTS)
    (tmp_path / "train.py").write_text("")
    assert "worker:0  here  127.0.0.1:2222" in tfdeploy(installed, "plan", cwd=tmp_path)


def tfdeploy(installed, *words, cwd):
    """Run a command of an installed tfdeploy; return what it prints."""
    done = subprocess.run(
        [*REAL, *words],
        cwd=cwd, env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout
