"""Which tasks are waited for when a run is followed."""

from __future__ import annotations

from types import SimpleNamespace

from support.builders import make_run

from tfdeploy.commands.running import follow
from tfdeploy.commands.running.follow import Watcher, _Progress
from tfdeploy.errors import Unreachable


def test_after_the_chiefs_end_no_task_of_a_silent_host_is_waited_for(tmp_path):
    """Also not one without which the training can continue, such as a slot of trials."""
    hosts = "[hosts.a]\nworkers = 1\n[hosts.b]\nworkers = 1\n"
    run = make_run(tmp_path, hosts=hosts, top="[trials]\npoints = [{lr = '1'}]\n")
    progress = _Progress(run, Watcher(), None)
    progress.on_error(Unreachable("b", "gone"))
    progress.give_up(-1.0)
    assert progress.active == {"worker:0"}


def test_hosts_that_return_one_by_one_after_the_controller_had_no_network_are_not_lost(
    tmp_path, monkeypatch
):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(follow, "time", SimpleNamespace(monotonic=lambda: clock.now))
    hosts = "".join(f"[hosts.{name}]\nworkers = 1\n" for name in "abc")
    progress = _Progress(make_run(tmp_path, hosts=hosts), Watcher(), None)
    for host in "abc":
        progress.on_error(Unreachable(host, "no route to host"))
    clock.now = 300.0
    assert progress.silent_for(60.0) == {}
    progress.on_back("b")
    clock.now = 310.0
    assert progress.silent_for(60.0) == {}, "the others are being connected again"
    progress.on_back("c")
    clock.now = 361.0
    assert [*progress.silent_for(60.0)] == ["a"]
