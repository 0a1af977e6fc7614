"""What each command loads: a command starts fast if it loads only what it uses.

Nearly all CPU time of a short command is imports (docs/performance.md).
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.projects import environment


def loaded(*words, cwd, env=None):
    """Return the modules that a command of tfdeploy loads, and "plugins" if Pydantic has looked for
    plugins among the installed packages."""
    code = (
        "import json, sys\n"
        "from tfdeploy.cli import main\n"
        "sys.argv[0] = 'tfdeploy'\n"
        "try:\n main()\n"
        "finally:\n"
        " plugins = getattr(sys.modules.get('pydantic.plugin._loader'), '_plugins', None)\n"
        " found = [*sys.modules, *(['plugins'] if plugins is not None else [])]\n"
        " print(json.dumps(found), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=cwd, env=env, capture_output=True, text=True,
        timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


def within(modules, packages):
    """Return those of the packages that are loaded, or that have a loaded module."""
    parts = (module.split(".") for module in modules)
    return {".".join(p[:n]) for p in parts for n in range(1, len(p) + 1)} & packages


HEAVY = {"fabric", "paramiko", "invoke", "grpc", "tensorflow", "numpy", "matplotlib"}
# Each takes 1 to 15 ms of CPU to load, or is for other commands.
NOT_FOR_SHORT_COMMANDS = HEAVY | {
    *("asyncio", "concurrent.futures", "ctypes", "jinja2", "plugins"),
    *("rich", "sqlite3", "ssl", "statistics", "textual", "toml"),
    *("tfdeploy.agent.environments", "tfdeploy.environments", "tfdeploy.branches.measuring.speed"),
    *("tfdeploy.branches.measuring.compare", "tfdeploy.formatting.known_messages"),
    *("tfdeploy.init", "tfdeploy.branches.live.watched_run", "tfdeploy.output.progress"),
}
PROJECT = (
    'project = "p"\n[training]\ncommand = "python train.py"\n'
    '[hosts.here]\ntransport = "local"\nworkers = 1\n'
)


@pytest.mark.parametrize("module", ["client", "locate", "server"])
def test_a_command_that_uses_the_connection_daemon_loads_no_heavy_library(module):
    imported = f"tfdeploy.transport.daemon.{module}"
    code = f"import json, sys, {imported}; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert within(json.loads(done.stdout), HEAVY) == set()


def test_help_loads_no_heavy_library(tmp_path):
    modules = loaded("--help", cwd=tmp_path)
    assert "typer" in modules
    others = {"importlib.resources", "logging", "pydantic", "tempfile", "tfdeploy.config.inventory"}
    assert within(modules, NOT_FOR_SHORT_COMMANDS | others) == set()


def test_plan_loads_no_heavy_library(tmp_path):
    (tmp_path / "train.py").write_text("")
    (tmp_path / ".gitignore").write_text("# a comment\n\nbuild/\n*.log\n")
    (tmp_path / "hosts.toml").write_text(PROJECT)
    modules = loaded("plan", cwd=tmp_path, env=environment(tmp_path / "home"))
    assert "pydantic" in modules
    others = {"tfdeploy.hosts", "tfdeploy.transfer", "tfdeploy.transport"}
    assert within(modules, NOT_FOR_SHORT_COMMANDS | others) == set()


def test_status_by_the_connection_daemon_loads_no_heavy_library(by_ssh):
    project = by_ssh.started()
    project.ok("status")  # the daemon has the connections, and the answers of ssh -G
    modules = loaded("status", cwd=project.folder, env=environment(project.folder))
    assert "tfdeploy.transport.daemon.client" in modules
    others = {"tfdeploy.planning.launch", "tfdeploy.release", "tfdeploy.transfer"}
    # The run's record is its plan: hosts.toml is neither read nor validated.
    others |= {"tfdeploy.config.types", "tomllib"}  # Typer 0.29 itself loads Pydantic
    assert within(modules, NOT_FOR_SHORT_COMMANDS | others) == set()


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
