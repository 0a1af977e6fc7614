"""What a refusal proposes about the run that has a port or a GPU."""

from __future__ import annotations

import os
import pwd

from tfdeploy.agent.machine import leases
from tfdeploy.agent.machine.leases import Holder, taken_refusal

USER = pwd.getpwuid(os.getuid()).pw_name


def test_only_a_run_of_the_same_user_can_be_stopped():
    own = Holder(pid=7, user=USER, project="digits", run="r-7", task="ps:0")
    assert taken_refusal("GPU 0", own).hint == (
        f"{leases.WAIT}; stop it in the folder of project digits with tfdeploy stop --run r-7; "
        "or use fewer or other GPUs"
    )
    other = Holder(pid=7, user="somebody", project="digits", run="r-7", task="ps:0")
    assert taken_refusal("GPU 0", other).hint == f"{leases.WAIT}; or use fewer or other GPUs"
