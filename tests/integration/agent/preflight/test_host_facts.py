"""An import on a host: the result and the error that it reports."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

import tfdeploy
from tfdeploy.agent.preflight import host_facts


@pytest.fixture(autouse=True)
def agent(root):
    """The folder of an agent, with what it adds to the Python of a task."""
    folder = root / "agent/abc.pyz"
    folder.mkdir()
    (folder / "inside").symlink_to(Path(tfdeploy.__file__).parent / "inside")


@pytest.mark.parametrize(
    ("code", "slow"), [("import time; time.sleep(60)", True), ("raise ImportError('no')", False)]
)
def test_a_slow_import_is_distinguished_from_a_failed_one(tmp_path, monkeypatch, code, slow):
    monkeypatch.setattr(host_facts, "IMPORT_S", 0.5 if slow else 60.0)
    (tmp_path / "tensorflow.py").write_text(code)
    result = import_from(tmp_path)
    assert result.slow == slow
    assert ("took longer than" in result.error) == slow


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("raise ImportError('libcuda is gone')", "ImportError: libcuda is gone"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "the import ended with SIGILL"),
        ("import os; os._exit(3)", "the import ended with exit 3"),
        ("import sys; sys.exit('no')", "SystemExit: no"),
    ],
)
def test_a_failed_import_is_reported_however_it_ends(tmp_path, body, error):
    (tmp_path / "tensorflow.py").write_text(body)
    found = import_from(tmp_path)
    assert (found.error, found.version) == (error, "")


def import_from(folder, module="tensorflow", **env):
    env = {"PYTHONPATH": str(folder), **env}
    return host_facts.import_module(module, sys.executable, env)


def test_other_modules_are_imported_with_their_version_if_they_have_one(tmp_path):
    (tmp_path / "jax.py").write_text("__version__ = '0.10.2'")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/layers.py").write_text("")
    assert import_from(tmp_path, "jax").version == "0.10.2"
    assert import_from(tmp_path, "mine.layers").version == "unknown"


# The part of TensorFlow that is used.
TENSORFLOW = """
import os
__version__ = "2.21.0"
print("{}")
class config:
    list_physical_devices = staticmethod(lambda kind: os.environ["CUDA_VISIBLE_DEVICES"].split(","))
"""


def test_what_tensorflow_prints_during_its_import_is_ignored(tmp_path):
    (tmp_path / "tensorflow.py").write_text(TENSORFLOW)
    found = import_from(tmp_path, CUDA_VISIBLE_DEVICES="3")
    assert (found.version, found.gpus, found.error) == ("2.21.0", 1, "")
    assert found.python == platform.python_version()
