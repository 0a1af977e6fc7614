"""The environment that a task gets: the host's own, under what its launch says."""

from __future__ import annotations

from tfdeploy.agent.spawn import environment
from unit.made import launch

DEVICE = "TFDEPLOY_CHECKPOINT_DEVICE"


def made(env=None, base=None, **changes):
    return environment(launch(env=env or {}, **changes), base or {}, "p/r/worker:0", "/agent.pyz")


def test_the_launch_stands_over_the_host():
    env = made({"A": "launch"}, {"A": "host", "B": "host"})
    assert (env["A"], env["B"]) == ("launch", "host")


def test_every_task_carries_its_mark():
    assert made({"TFDEPLOY_TASK": "other"})["TFDEPLOY_TASK"] == "p/r/worker:0"


def test_no_bytecode_is_written_into_a_release():
    assert made()["PYTHONDONTWRITEBYTECODE"] == "1"


def test_peers_are_reached_without_a_proxy():
    env = made(no_proxy=["10.0.0.1", "gpu"])
    told = {env[name] for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy")}
    assert told == {"10.0.0.1,gpu"}


def test_what_needs_no_proxy_already_is_kept():
    assert made({}, {"no_proxy": "corp"}, no_proxy=["gpu"])["no_proxy"] == "corp,gpu"
    assert made({"NO_PROXY": "mine"}, no_proxy=["gpu"])["NO_PROXY"] == "mine,gpu"


def test_the_proxy_itself_is_left_to_the_script():
    assert made({}, {"https_proxy": "http://p:1"})["https_proxy"] == "http://p:1"


def test_what_keeps_checkpoints_on_the_chief_is_loaded_first():
    assert made({DEVICE: "d", "PYTHONPATH": "/own"})["PYTHONPATH"] == "/agent.pyz/inside:/own"
    assert made({DEVICE: "d"})["PYTHONPATH"] == "/agent.pyz/inside"


def test_what_saves_at_a_stop_is_loaded_too():
    assert made({"TFDEPLOY_SAVE_ON_STOP": "1"})["PYTHONPATH"] == "/agent.pyz/inside"


def test_it_is_not_loaded_where_it_has_nothing_to_do():
    assert "PYTHONPATH" not in made()
    assert made({"PYTHONPATH": "/own"})["PYTHONPATH"] == "/own"
