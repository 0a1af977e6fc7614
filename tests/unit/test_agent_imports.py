"""What each call of the agent loads: on every host a Python of its own, which does little else."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tfdeploy

# Each takes 1 to 6 ms of CPU to load; Python itself takes 6.
HEAVY = {
    "asyncio", "concurrent.futures", "ctypes", "encodings.idna", "hashlib", "logging", "random",
    "shutil", "socketserver", "ssl", "subprocess", "traceback", "typing",
}  # fmt: skip
# What is needed of these to do what is asked, and nothing else.
NEEDED = {
    "status": set(),
    "stop": set(),
    "start": {"subprocess"},
    "supervisor": {"ctypes", "hashlib", "subprocess"},
}
ELSEWHERE = {
    "status": {"checkpoints", "circle", "leases", "start", "stop", "supervisor"},
    "stop": {"checkpoints", "health", "leases", "progress", "start", "status", "tail"},
    "start": {"checkpoints", "circle", "health", "progress", "status", "stop", "supervisor"},
    "supervisor": {"logout", "ports", "progress", "start", "status", "stop", "tail"},
}


@pytest.fixture
def loaded(tmp_path):
    """The modules that a Python of its own has loaded after `code`, as on a host: with the agent
    beside it, and nothing else of tfdeploy."""
    agent = Path(tfdeploy.__file__).parent / "agent"
    shutil.copytree(agent, tmp_path / "tfdeploy" / "agent")
    (tmp_path / "tfdeploy" / "__init__.py").touch()

    def run(code):
        done = subprocess.run(
            [sys.executable, "-S", "-E", "-c", f"{code}\nimport json, sys\n"
             "print(json.dumps(sorted(sys.modules)))"],
            cwd=tmp_path, capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return set(json.loads(done.stdout))

    return run


@pytest.mark.parametrize("module", NEEDED)
def test_no_more_of_what_is_heavy_is_loaded_than_is_needed(loaded, module):
    assert loaded(f"import tfdeploy.agent.{module}") & HEAVY == NEEDED[module]


@pytest.mark.parametrize("module", ELSEWHERE)
def test_what_another_verb_needs_is_left_to_it(loaded, module):
    found = loaded(f"import tfdeploy.agent.{module}")
    assert f"tfdeploy.agent.{module}" in found
    assert found & {f"tfdeploy.agent.{other}" for other in ELSEWHERE[module]} == set()


def test_to_ask_a_port_loads_nothing_more(loaded):
    begin = "from tfdeploy.agent import health"
    assert loaded(f"{begin}\nhealth.ask('localhost', 1, 'ps:0')") == loaded(begin)


def test_to_tell_and_to_hear_how_a_run_goes_loads_nothing_more(loaded):
    begin = "from tfdeploy.agent import circle\nfrom tfdeploy.agent.records import Circle"
    asked = """
known = Circle("localhost", 0, "s3cret", "worker:0", ["worker:0"], [], [], 60.0)
beacon = circle.Beacon(known, None)
assert circle.wire.ask(beacon._server.server_address[:2], "s3cret", {}, 30.0)[0]["going"] == []
beacon.close()
"""
    assert loaded(begin + asked) == loaded(begin)
