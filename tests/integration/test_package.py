"""The installed package contains the example of hosts.toml, which messages refer to."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = (
    "tfdeploy",
    "pyproject.toml",
    "MANIFEST.in",
    "README.md",
    "LICENSE",
    "hosts.example.toml",
)
# Other tests compile modules at the same time: temporary files in __pycache__ may disappear.
OPTIONS = {"symlinks": True, "ignore": shutil.ignore_patterns("__pycache__")}
# pyproject.toml requires this version: an older one can't read its table.
HAS_SETUPTOOLS = int(metadata.version("setuptools").split(".")[0]) >= 77


@pytest.mark.skipif(
    not HAS_SETUPTOOLS, reason="setuptools 77 or newer is missing: pip install '.[dev]'"
)
@pytest.mark.parametrize(
    "built_from", ["the sources", pytest.param("an sdist", marks=pytest.mark.slow)]
)
def test_the_wheel_contains_the_example(tmp_path, built_from):
    source = tmp_path / "source"
    source.mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, source / name, **(OPTIONS if copy is shutil.copytree else {}))
    if built_from == "an sdist":
        call_build_hook(source, "build_sdist")
        [sdist] = source.glob("dist/*.tar.gz")
        shutil.unpack_archive(sdist, tmp_path, filter="data")
        source = tmp_path / sdist.name.removesuffix(".tar.gz")
    call_build_hook(source, "build_wheel")
    [wheel] = source.glob("dist/*.whl")
    with zipfile.ZipFile(wheel) as archive:
        content = archive.read("tfdeploy/hosts.example.toml").decode()
    assert content == (ROOT / "hosts.example.toml").read_text()


def call_build_hook(source, hook):
    """Call a hook of the build backend in its own process, as pip does."""
    code = f"from setuptools import build_meta; build_meta.{hook}('dist')"
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=source, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
