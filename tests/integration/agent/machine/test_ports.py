"""Free ports of this machine, and the refusal of a port that is taken."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.builders import as_unprivileged_user, start_python
from support.refusals import port_refusal

from tfdeploy.agent.machine import leases, process

LISTEN = (
    "import socket, sys, time; listener = socket.create_server(('', 0));"
    " print(listener.getsockname()[1], flush=True); time.sleep(60)"
)


def test_another_process_on_a_port_is_named():
    with start_python(LISTEN) as stranger:
        message, hint = port_refusal(int(stranger.first_line))
        stranger.kill()
    start = f"port {stranger.first_line} for worker:1 is taken by pid {stranger.pid} ("
    assert (message.startswith(start), hint) == (
        True,
        f"stop that process; {leases.WAIT}; or give the host other ports",
    )


def test_a_task_left_by_an_earlier_run_is_named_with_the_stop_command():
    env = {**os.environ, process.MARK: "digits/r-7/ps:1"}
    with start_python(LISTEN, env=env) as stale:
        message, hint = port_refusal(int(stale.first_line))
        stale.kill()
    assert message.endswith("ps:1 of run r-7 of digits")
    stop = "in the folder of project digits with tfdeploy stop --run r-7"
    assert hint == f"stop what is left of it {stop}"


def test_a_hidden_process_is_reported_with_its_user(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root has processes that it can hide from itself as another user")
    with start_python(LISTEN) as hidden:
        with as_unprivileged_user(tmp_path):
            message, _ = port_refusal(int(hidden.first_line))
        hidden.kill()
    assert message.endswith("is taken by a process of another user (root)")


def test_a_privileged_port_is_refused():
    """In a network of its own: in a container every user may open every port."""
    code = (
        "from tfdeploy.agent.machine import ports; from tfdeploy.agent.refusal import Refusal\n"
        "try: ports.require_free(1023, 'worker:1')\n"
        "except Refusal as refusal: print(refusal.message, refusal.hint, sep='\\n')"
    )
    unprivileged = ["unshare", "--user", "--net", sys.executable, "-c", code]
    output = subprocess.run(unprivileged, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert output.splitlines() == [
        "this user may not open port 1023",
        "ports below 1024 are reserved for root: give the host other ports",
    ]
