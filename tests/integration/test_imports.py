"""What each command loads: a command starts fast if it loads only the libraries that it uses."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


def loaded(*words, cwd):
    """Return the top-level modules that a command of tfdeploy loads."""
    code = (
        "import json, sys\n"
        "from tfdeploy.cli import main\n"
        "sys.argv[0] = 'tfdeploy'\n"
        "try:\n main()\n"
        "finally:\n print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=cwd, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return {name.split(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}


HEAVY = {"fabric", "paramiko", "invoke", "grpc", "tensorflow", "numpy", "matplotlib"}


@pytest.mark.parametrize("module", ["client", "locate", "server"])
def test_a_command_that_uses_the_connection_daemon_loads_no_heavy_library(module):
    imported = f"tfdeploy.transport.daemon.{module}"
    code = f"import json, sys, {imported}; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert {name.split(".")[0] for name in json.loads(done.stdout)} & HEAVY == set()


def test_help_loads_no_heavy_library(tmp_path):
    modules = loaded("--help", cwd=tmp_path)
    assert "typer" in modules
    assert modules & (HEAVY | {"pydantic", "pathspec"}) == set()


def test_plan_loads_no_heavy_library(tmp_path):
    (tmp_path / "train.py").write_text("")
    (tmp_path / "hosts.toml").write_text(
        'project = "p"\n[training]\ncommand = "python train.py"\n'
        '[hosts.here]\ntransport = "local"\nworkers = 1\n'
    )
    modules = loaded("plan", cwd=tmp_path)
    assert "pydantic" in modules
    assert modules & HEAVY == set()


def test_a_short_command_never_searches_for_garbage(tmp_path):
    code = (
        "import atexit, gc, sys\n"
        "from tfdeploy.__main__ import main\n"
        "searches = []\n"
        "gc.callbacks.append(lambda phase, info: searches.append(phase))\n"
        "atexit.register(lambda: print(len(searches), gc.get_freeze_count() > 0))\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "example"], cwd=tmp_path, capture_output=True, text=True,
        timeout=600,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "0 True", done.stderr
