"""What each call of the agent loads: imports are most of its CPU time on a host."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.ports import free_port

import tfdeploy

# Each needs 1 to 6 ms of CPU to load; Python itself needs 6.
HEAVY = {
    "asyncio", "concurrent.futures", "ctypes", "dataclasses", "encodings.idna", "hashlib",
    "inspect", "logging", "random", "shutil", "socketserver", "ssl", "subprocess", "traceback",
    "typing",
}  # fmt: skip
# Those of HEAVY that a module needs.
NEEDED = {
    "reports.follow": set(),
    "reports.status": set(),
    "runs.stop": set(),
    "runs.start": {"subprocess"},
    "runs.supervise": {"ctypes", "hashlib", "subprocess"},
}
# Modules for other verbs.
NOT_NEEDED = {
    "reports.follow": {
        "agent.machine.grpc_health",
        "agent.outputs.checkpoints",
        "agent.outputs.event_files",
        "agent.outputs.listing",
        "agent.reports.tail",
        "agent.reports.progress",
        "agent.supervision.supervisor",
    },
    "reports.status": {
        "agent.outputs.checkpoints",
        "shared.protocol.outputs",
        "agent.supervision.heartbeat",
        "agent.machine.leases",
        "agent.runs.start",
        "agent.runs.stop",
        "agent.supervision.supervisor",
    },
    "runs.stop": {
        "agent.outputs.checkpoints",
        "agent.machine.grpc_health",
        "agent.machine.leases",
        "agent.reports.progress",
        "agent.runs.start",
        "agent.reports.status",
        "agent.reports.tail",
    },
    "runs.start": {
        "agent.outputs.checkpoints",
        "agent.supervision.heartbeat",
        "agent.machine.grpc_health",
        "agent.reports.progress",
        "agent.reports.status",
        "agent.runs.stop",
        "agent.supervision.supervisor",
    },
    "runs.supervise": {
        "agent.machine.logind",
        "agent.machine.ports",
        "agent.reports.progress",
        "agent.runs.start",
        "agent.reports.status",
        "agent.runs.stop",
        "agent.reports.tail",
    },
}


@pytest.fixture
def loaded(tmp_path):
    """Return a function that runs `code` in a new Python with only the agent of tfdeploy, as on a
    host, and returns the loaded modules."""
    # Other tests compile modules at the same time: temporary files in __pycache__ may disappear.
    ignore = shutil.ignore_patterns("__pycache__")
    for folder in ("agent", "shared"):
        source = Path(tfdeploy.__file__).parent / folder
        shutil.copytree(source, tmp_path / "tfdeploy" / folder, ignore=ignore)
    (tmp_path / "tfdeploy" / "__init__.py").touch()

    def run(code):
        done = subprocess.run(
            [sys.executable, "-S", "-E", "-c", f"{code}\nimport json, sys\n"
             "print(json.dumps(sorted(sys.modules)))"],
            cwd=tmp_path, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return set(json.loads(done.stdout))

    return run


@pytest.mark.parametrize("module", NEEDED)
def test_an_agent_module_loads_only_the_heavy_modules_that_it_needs(loaded, module):
    assert loaded(f"import tfdeploy.agent.{module}") & HEAVY == NEEDED[module]


@pytest.mark.parametrize("module", NOT_NEEDED)
def test_an_agent_module_loads_no_module_for_other_verbs(loaded, module):
    found = loaded(f"import tfdeploy.agent.{module}")
    assert f"tfdeploy.agent.{module}" in found
    assert found & {f"tfdeploy.{other}" for other in NOT_NEEDED[module]} == set()


def test_probing_a_port_loads_no_more_modules(loaded):
    imports = "from tfdeploy.agent.machine import grpc_health as health"
    assert loaded(f"{imports}\nhealth.probe('localhost', 1, 'ps:0')") == loaded(imports)


def test_heartbeats_load_no_more_modules(loaded):
    imports = "from tfdeploy.agent.supervision import heartbeat"
    exchange = """
from tfdeploy.shared.records import HeartbeatSettings
chief = HeartbeatSettings("localhost", PORT, "s3cret", "worker:0", ["worker:0"], [], [], 60.0)
server = heartbeat.HeartbeatServer(chief, None)
assert heartbeat.request(chief.of("worker:0"), {}, 30.0)[0]["going"] == []
server.close()
"""
    assert loaded(imports + exchange.replace("PORT", str(free_port()))) == loaded(imports)
