"""Which tasks are waited for when a run is followed."""

from __future__ import annotations

from support.builders import make_run

from tfdeploy.commands.following.run_follow import Watcher, _Progress
from tfdeploy.errors import Unreachable


def test_after_the_chiefs_end_no_task_of_a_silent_host_is_waited_for(tmp_path):
    """Also not one without which the training can continue, such as a slot of trials."""
    hosts = "[hosts.a]\nworkers = 1\n[hosts.b]\nworkers = 1\n"
    run = make_run(tmp_path, hosts=hosts, top="[trials]\npoints = [{lr = '1'}]\n")
    progress = _Progress(run, Watcher(), None)
    progress.on_error(Unreachable("b", "gone"))
    progress.give_up(-1.0)
    assert progress.active == {"worker:0"}
