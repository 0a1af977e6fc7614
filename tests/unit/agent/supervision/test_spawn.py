"""The environment of a task: the host's, overridden by its launch."""

from __future__ import annotations

import subprocess

import pytest
from support.builders import change_launch, make_launch

from tfdeploy.agent.machine import guard, interfaces
from tfdeploy.agent.supervision.spawn import (
    _interface_variables,
    environment,
    environment_of_user,
    preloaded,
    spawn,
)
from tfdeploy.shared.protocol.record import replace

DEVICE = "TFDEPLOY_CHECKPOINT_DEVICE"


def task_environment(env=None, base=None, **changes):
    launch = make_launch(env=env or {}, **{"index": 1, **changes})
    return environment(launch, base or {}, "p/r/worker:1", "/agent.pyz", "/task")


def test_the_launch_overrides_the_host():
    env = task_environment({"A": "launch"}, {"A": "host", "B": "host"})
    assert (env["A"], env["B"]) == ("launch", "host")


def test_every_task_has_its_mark():
    assert task_environment({"TFDEPLOY_TASK": "other"})["TFDEPLOY_TASK"] == "p/r/worker:1"


def test_no_bytecode_is_written_into_a_release():
    assert task_environment()["PYTHONDONTWRITEBYTECODE"] == "1"


def test_peers_are_excluded_from_the_proxy():
    env = task_environment(no_proxy=["10.0.0.1", "gpu"])
    values = {env[name] for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy")}
    assert values == {"10.0.0.1,gpu"}


def test_earlier_proxy_exclusions_are_kept():
    assert task_environment({}, {"no_proxy": "corp"}, no_proxy=["gpu"])["no_proxy"] == "corp,gpu"
    assert task_environment({"NO_PROXY": "mine"}, no_proxy=["gpu"])["NO_PROXY"] == "mine,gpu"


def test_the_proxy_itself_is_not_changed():
    assert task_environment({}, {"https_proxy": "http://p:1"})["https_proxy"] == "http://p:1"


def test_the_checkpoint_device_puts_inside_first_on_the_python_path():
    assert (
        task_environment({DEVICE: "d", "PYTHONPATH": "/own"})["PYTHONPATH"]
        == "/agent.pyz/inside:/own"
    )
    assert task_environment({DEVICE: "d"})["PYTHONPATH"] == "/agent.pyz/inside"


def test_save_on_stop_puts_inside_on_the_python_path():
    assert task_environment({"TFDEPLOY_SAVE_ON_STOP": "1"})["PYTHONPATH"] == "/agent.pyz/inside"


def test_every_task_records_what_it_writes_elsewhere():
    assert task_environment()["TFDEPLOY_SAVES"] == "/task/saves"


def test_inside_is_not_on_the_python_path_by_default():
    assert "PYTHONPATH" not in task_environment()
    assert task_environment({"PYTHONPATH": "/own"})["PYTHONPATH"] == "/own"


def test_a_task_that_others_connect_to_reports_its_versions():
    peers = replace(make_launch().heartbeat, tasks=["worker:0", "worker:1"])
    env = task_environment(heartbeat=peers, port=2222)
    assert (env["TFDEPLOY_VERSIONS"], env["PYTHONPATH"]) == ("/task/versions", "/agent.pyz/inside")
    assert "TFDEPLOY_VERSIONS" not in task_environment(heartbeat=peers, port=None)


def preload_variables(env=None, network="guarded"):
    launch = make_launch(network=network)
    return preloaded(launch, env or {}, "/agent/preload/x86_64.so", "/task")


def test_a_guarded_task_loads_the_library_and_knows_its_list():
    assert preload_variables() == {
        "LD_PRELOAD": "/agent/preload/x86_64.so",
        "TFDEPLOY_PEERS": "/task/peers",
    }


def test_an_open_task_loads_the_library_without_a_list():
    assert preload_variables(network="open") == {"LD_PRELOAD": "/agent/preload/x86_64.so"}


def test_what_the_user_preloads_comes_first():
    variables = preload_variables({"LD_PRELOAD": "/usr/lib/libtcmalloc.so.4"})
    assert variables["LD_PRELOAD"] == "/usr/lib/libtcmalloc.so.4:/agent/preload/x86_64.so"


# A user's command beside the task


def user_environment(monkeypatch, base=None, **changes):
    monkeypatch.setattr(guard, "prepare", lambda: "/agent/preload/x86_64.so")
    launch = make_launch(**{"network": "guarded", **changes})
    return environment_of_user(launch, base or {}, "/task")


def test_a_command_of_a_user_has_the_variables_and_the_guard_of_the_task(monkeypatch):
    env = user_environment(
        monkeypatch, {"A": "host"}, env={"B": "launch"}, secrets={"KEY": "s"}, no_proxy=["gpu"]
    )
    assert (env["A"], env["B"], env["KEY"], env["no_proxy"]) == ("host", "launch", "s", "gpu")
    assert (env["PWD"], env["TFDEPLOY_PEERS"]) == ("/task/work", "/task/peers")
    assert env["LD_PRELOAD"] == "/agent/preload/x86_64.so"


@pytest.mark.parametrize("network", ["guarded", "strict"])
def test_a_command_of_a_user_connects_from_the_ports_of_a_strict_task(monkeypatch, network):
    monkeypatch.setattr(guard, "read_ports", lambda task_dir: (21000, 21127))
    found = user_environment(monkeypatch, network=network).get("TFDEPLOY_SOURCE_PORTS")
    assert found == {"guarded": None, "strict": "21000 21127"}[network]


def test_a_command_of_a_user_is_no_process_of_the_task_and_has_no_hooks(monkeypatch):
    hooks = {DEVICE: "d", "TFDEPLOY_SAVE_ON_STOP": "1", "TFDEPLOY_END_AT_EXIT": "1"}
    env = user_environment(monkeypatch, env=hooks, index=0)
    assert env.keys() & {*hooks, "TFDEPLOY_SAVES", "TFDEPLOY_TASK", "PYTHONPATH"} == set()


@pytest.mark.parametrize("network", ["guarded", "open"])
def test_a_guarded_task_connects_on_its_host_from_the_ports_of_its_user(
    monkeypatch, tmp_path, network
):
    monkeypatch.setattr(guard, "prepare", lambda: "")
    monkeypatch.setattr(guard, "hold_local_ports", lambda: (61440, 61471))
    monkeypatch.setattr(subprocess, "Popen", lambda words, env, **more: env)
    monkeypatch.setenv("TFDEPLOY_LOCAL_PORTS", "1 65535")  # nobody holds these
    env = spawn(make_launch(network=network), str(tmp_path), "mark", 1)
    assert env.get("TFDEPLOY_LOCAL_PORTS") == {"guarded": "61440 61471", "open": None}[network]


def test_nccl_and_gloo_use_the_interface_with_the_hosts_address():
    address, name = next(interfaces.addresses())
    launch = make_launch(address=address, no_proxy=["10.0.0.9", address])
    variables = {"NCCL_SOCKET_IFNAME": f"={name}", "GLOO_SOCKET_IFNAME": name}
    assert _interface_variables(launch) == variables
    assert _interface_variables(make_launch(address="127.0.0.1", no_proxy=["a", "b"])) == {}
    assert _interface_variables(change_launch(launch, no_proxy=[address])) == {}
