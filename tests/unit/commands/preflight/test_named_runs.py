"""Which of several runs a name means."""

from __future__ import annotations

import pytest
from support.builders import make_run

from tfdeploy.commands.preflight.named_runs import SeveralLiveRuns, choose


@pytest.fixture
def named(tmp_path):
    """Three runs, the newest first, on a host each: new, mid and old."""
    return [
        make_run(tmp_path, f"{host}.toml", host, f"[hosts.{host}]\nworkers = 1")
        for host in ("new", "mid", "old")
    ]


@pytest.mark.parametrize(
    ("live", "silent", "meant"),
    [
        ((), (), ["new"]),
        ((), ("new", "old"), ["new"]),
        (("mid",), (), ["mid"]),
        (("mid",), ("old",), ["mid"]),
        (("mid",), ("new",), ["new", "mid"]),
        (("new", "old"), (), ["new", "old"]),
    ],
)
def test_a_name_means_its_live_run_unless_a_newer_one_may_live_on_a_silent_host(
    named, live, silent, meant
):
    assert [run.id for run in choose(named, live, silent)] == meant


def test_runs_that_only_may_live_are_listed_as_such(named):
    message = SeveralLiveRuns(named[:2], ["new"]).message
    assert message.startswith("2 runs that are live, or may be on new, are named")
