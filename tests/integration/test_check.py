"""`tfdeploy check`: what would keep a start from going well is said before anything is started."""

from __future__ import annotations

import json
import math
import os
import re
import socket
import sys
from pathlib import Path

import pytest

from tfdeploy.agent import doors, survey
from tfdeploy.errors import AgentError
from tfdeploy.steps.check import _odd_clock, _small_disk, _survey
from tfdeploy.steps.doors import _opened
from tfdeploy.told import sound

from .sshd import free_ports, until

# As much of TensorFlow as check asks for.
TENSORFLOW = """
import os
__version__ = "{}"
shown = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
class config:
    list_physical_devices = staticmethod(lambda kind: [kind for each in shown if int(each) in {}])
"""
NVIDIA_SMI = """#!/bin/sh
case $1 in
-L) for n in 0 1; do echo "GPU $n: Tesla X (UUID: GPU-{name}-$n)"; done ;;
--query-compute-apps=*) echo "GPU-{name}-1, {pid}, 3000 MiB" ;;
esac
"""


@pytest.fixture
def with_tensorflow(world, tmp_path):
    """A project on hosts whose Python imports a TensorFlow of such a version; `more` are keys of
    all hosts."""

    def make(version="2.21.0", **more):
        (tmp_path / "packages").mkdir(exist_ok=True)
        (tmp_path / "packages/tensorflow.py").write_text(TENSORFLOW.format(version, []))
        env = {"PYTHONPATH": str(tmp_path / "packages")}
        hosts = {name: host | {"env": env} | more for name, host in world.hosts().items()}
        return world.project(hosts=hosts)

    return make


@pytest.fixture
def gpus(tmp_path, monkeypatch):
    """This machine has two, of which the second is used by this very process."""
    name = f"{os.getpid()}-{tmp_path.name}"
    program = tmp_path / "smi/nvidia-smi"
    program.parent.mkdir()
    program.write_text(NVIDIA_SMI.format(name=name, pid=os.getpid()))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def checked(project, exit_code=0):
    done = project.tf("check", "--json")
    assert done.returncode == exit_code, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_hosts_that_can_take_the_tasks_are_told_of_in_a_table(with_tensorflow):
    project = with_tensorflow()
    said = project.ok("check").splitlines()
    names = ", ".join(project.hosts)
    assert re.fullmatch(rf"{names} +3\.\d+\.\d+ +2\.21\.0 +- +3\.\S+ +[\d.]+ [GT]B *", said[1])
    hosts = "1 host" if len(project.hosts) == 1 else "2 hosts"
    assert said[2:] == [f"{hosts} can take 3 tasks: tfdeploy run"]
    told = checked(project)
    assert (told["errors"], told["notes"]) == ([], [])
    assert {host["tensorflow"] for host in told["hosts"].values()} == {"2.21.0"}
    assert all(abs(host["ahead_s"]) < 5 for host in told["hosts"].values())


def test_nothing_is_started_and_no_port_stays_open(with_tensorflow):
    project = with_tensorflow()
    checked(project)
    assert not (project.folder / "runs").exists()
    assert not any(project.on(host).exists() for host in project.hosts)
    project.ok("push")
    project.ok("start")
    assert set(project.status()) == {"ps:0", "worker:0", "worker:1"}


def test_a_python_without_tensorflow_is_named_with_the_reason(world):
    project = world.project()
    told = checked(project, 1)
    assert [error.splitlines()[0] for error in told["errors"]] == [
        f"{name}: {host['python']} can't import TensorFlow: "
        "ModuleNotFoundError: No module named 'tensorflow'"
        for name, host in project.hosts.items()
    ]
    assert {host["tensorflow"] for host in told["hosts"].values()} == {None}
    assert project.tf("check").stderr.startswith("error: ")


def test_where_the_command_is_no_python_that_is_but_a_note(world):
    told = checked(world.project(training={"command": "sleep 100", "role": "tf_config"}))
    assert told["errors"] == []
    assert all("can't import TensorFlow" in note for note in told["notes"])


def test_a_port_that_a_stranger_has_is_named(with_tensorflow):
    project = with_tensorflow()
    name, host = next(iter(project.hosts.items()))
    with socket.create_server(("", host["ports"][0])):
        told = checked(project, 1)
    [error] = told["errors"]
    assert error.startswith(
        f"{name}: port {host['ports'][0]} for ps:0 is taken by pid {os.getpid()}"
    )


def test_what_a_run_holds_is_named_with_the_run(with_tensorflow):
    project = with_tensorflow()
    project.flags = ["--hold"]
    project.write()
    project.ok("push")
    project.ok("start")
    errors = checked(project, 1)["errors"]
    assert len(errors) == 3 + 1  # the tasks' ports, and that of the run's own news
    assert all(f"of run {project.runs[-1]} of {project.name}" in error for error in errors)
    assert all(f"tfdeploy stop --run {project.runs[-1]}" in error for error in errors)


def test_a_program_that_is_not_there_is_named(with_tensorflow):
    project = with_tensorflow()
    project.training["command"] = "/no/python train.py"
    project.write()
    errors = checked(project, 1)["errors"]
    assert {error.splitlines()[0].partition(": ")[2] for error in errors} == {
        f"the program /no/python of {task} is not on this host"
        for task in ("ps:0", "worker:0", "worker:1")
    }


def test_tensorflow_is_looked_for_as_tasks_will_find_it(world, tmp_path):
    """By the PATH that they have, and in what one job's own table adds; not in a home."""
    (tmp_path / "job").mkdir()
    (tmp_path / "job/tensorflow.py").write_text(TENSORFLOW.format("2.21.0", []))
    hosts = world.hosts()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").symlink_to(next(iter(hosts.values()))["python"])
    hosts = {name: host | {"python": "python3"} for name, host in hosts.items()}
    env = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "PYTHONPATH": str(tmp_path / "job")}
    training = {job: {"env": env} for job in ("ps", "worker")}
    project = world.project(hosts=hosts, training=training)
    home = project.folder.parent / "json.py"
    home.write_text("raise ImportError")
    assert checked(project)["errors"] == []
    home.unlink()


def test_what_a_spare_lacks_is_but_a_note(by_ssh, tmp_path):
    (tmp_path / "tensorflow.py").write_text(TENSORFLOW.format("2.21.0", []))
    hosts = by_ssh.hosts()
    spare = hosts["two"] | {"directory": str(tmp_path / "three"), "workers": 0, "spare": True}
    told = checked(by_ssh.project(hosts=hosts | {"three": spare, "two": hosts["two"]}), 1)
    assert {error.split(":")[0] for error in told["errors"]} == {"one", "two"}
    assert {note.split(":")[0] for note in told["notes"]} == {"three"}
    own = {"worker": {"env": {"PYTHONPATH": str(tmp_path)}}}
    told = checked(by_ssh.project(hosts=hosts | {"three": spare}, training=own), 1)
    assert {error.split(":")[0] for error in told["errors"]} == {"one"}  # where a ps is
    assert told["notes"] == []


def test_each_program_is_looked_for_by_its_tasks_own_path(with_tensorflow, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/myps").symlink_to("/bin/true")
    project = with_tensorflow()
    path = {"env": {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}}
    project.training |= {"ps": {"command": "myps", **path}}
    project.write()
    assert checked(project)["errors"] == []
    project.training |= {"ps": {"command": "myps"}, "worker": path}
    project.write()
    [error] = checked(project, 1)["errors"]
    assert "the program myps of ps:0 is not on this host" in error


def test_where_no_port_is_waited_for_none_needs_to_be_reached(by_ssh, tmp_path):
    env = {"env": {"PYTHONPATH": str(tmp_path)}}
    (tmp_path / "tensorflow.py").write_text(TENSORFLOW.format("2.21.0", []))
    hosts = {name: host | env for name, host in by_ssh.hosts().items()}
    hosts["one"] |= {"address": "255.255.255.255"}
    assert checked(by_ssh.project(hosts=hosts, training={"ready": "process"}))["errors"] == []
    [error] = checked(by_ssh.project(hosts=hosts), 1)["errors"]
    assert error.startswith("ps:0 on one: two can't reach one at 255.255.255.255, on the port of")


SOUND = {
    **{"version": "3.11.7", "tensorflow": {}, "gpus": {}, "rsync": "", "here": ""},
    **{"free_bytes": 0, "hindrances": [], "noted": [], "time": 0.0},
}


@pytest.mark.parametrize(
    "said",
    [
        *({"time": value} for value in ("x", math.inf, math.nan, None)),
        *({"free_bytes": value} for value in ("x", math.inf, None)),
        *({"gpus": value} for value in ([], {"x": 1}, 3)),
        *({"tensorflow": value} for value in ([], {"gpus": "x"}, 3)),
        *({"noted": value} for value in ([[]], [3], 3)),
    ],
)
def test_a_host_that_talks_nonsense_of_itself_is_named(said):
    assert sound("h", lambda: _survey("h", SOUND, 0.0)).version == "3.11.7"
    with pytest.raises(AgentError, match=r"^h: its answer makes no sense$"):
        sound("h", lambda: _survey("h", SOUND | said, 0.0))


@pytest.mark.parametrize(
    "said",
    [{}, {"end": True}, {"open": {}, "taken": 3}, {"open": {"ps:0": 0}, "taken": []},
     {"open": {"ps:0": "x"}, "taken": []}, {"open": {"ps:0": 1 << 16}, "taken": []}],
)  # fmt: skip
def test_so_is_one_that_talks_nonsense_of_its_ports(said):
    with pytest.raises(AgentError, match=r"^h: its answer makes no sense$"):
        sound("h", lambda: _opened((), said))


@pytest.mark.parametrize(
    ("ahead_s", "said"),
    [
        (3600.0, ["h: its clock is 1h 00m ahead of this machine's"]),
        (-90.0, ["h: its clock is 1m 30s behind this machine's"]),
        (2.0, []),
    ],
)
def test_a_clock_that_is_wrong_is_noted(ahead_s, said):
    found = _odd_clock(_survey("h", SOUND | {"time": ahead_s}, 0.0))
    assert [str(note).splitlines()[0] for note in found] == said


@pytest.mark.parametrize(
    ("free", "said"),
    [(10**9, ["h: only 1.0 GB are free where its directory lies"]), (2 * 10**9, [])],
)
def test_a_disk_that_is_nearly_full_is_noted(free, said):
    found = _small_disk(_survey("h", SOUND | {"free_bytes": free}, 0.0))
    assert [str(note).splitlines()[0] for note in found] == said


def test_ports_that_are_found_at_the_start_are_tried_too(with_tensorflow):
    assert checked(with_tensorflow(ports="auto"))["errors"] == []


def test_hosts_that_can_not_be_asked_hide_no_others(by_ssh, tmp_path):
    hosts = by_ssh.hosts()
    [port] = free_ports(1)
    gone = {"hostname": "127.0.0.1", "port": port, "workers": 0, "spare": True}
    project = by_ssh.project(hosts={**hosts, "gone": {**hosts["two"], **gone}})
    told = checked(project, 1)
    assert [*told["hosts"]] == ["one", "two"]
    assert any(error.startswith("gone: ") for error in told["errors"])


def test_hosts_that_share_a_directory_are_told_what_to_write(by_ssh, tmp_path):
    hosts = {n: host | {"directory": str(tmp_path / "home")} for n, host in by_ssh.hosts().items()}
    errors = checked(by_ssh.project(hosts=hosts), 1)["errors"]
    assert any(f'directory = "{tmp_path}/home/{{host}}"' in error for error in errors)


def test_versions_that_differ_are_noted(by_ssh, tmp_path):
    hosts = by_ssh.hosts()
    hosts["three"] = hosts["two"] | {"directory": str(tmp_path / "three")}
    for name, host in hosts.items():
        version = "2.20.0" if name == "two" else "2.21.0"
        (tmp_path / version).mkdir(exist_ok=True)
        (tmp_path / version / "tensorflow.py").write_text(TENSORFLOW.format(version, []))
        hosts[name] = host | {"env": {"PYTHONPATH": str(tmp_path / version)}, "ports": "auto"}
    told = checked(by_ssh.project(hosts=hosts))
    [note] = told["notes"]
    assert note.startswith("two: it has TensorFlow 2.20.0, and 2.21.0 is on one, three\n")


def test_gpus_are_listed_and_who_uses_one_is_noted(local, gpus, tmp_path):
    project = local.project(hosts=_seeing([0, 1], local, tmp_path, gpus=2))
    told = checked(project)
    assert told["hosts"]["here"]["gpus"] == ["Tesla X", "Tesla X"]
    [note] = told["notes"]
    assert note.startswith(f"here: GPU 1 is used by pid {os.getpid()} (")
    assert note.endswith(", 3000 MiB")
    assert "2 × Tesla X" in project.ok("check")


@pytest.mark.parametrize(
    ("asked", "seen", "sentence"),
    [
        (2, [], "here: of its 2 GPUs TensorFlow 2.21.0 sees 0"),
        ([0, 2], [0, 2], "here: hosts.toml gives it GPU 2, and nvidia-smi lists 2"),
    ],
)
def test_gpus_that_tasks_would_miss_are_an_error(local, gpus, tmp_path, asked, seen, sentence):
    told = checked(local.project(hosts=_seeing(seen, local, tmp_path, gpus=asked)), 1)
    assert [error.splitlines()[0] for error in told["errors"]] == [sentence]


def test_a_gpu_that_no_task_has_need_not_be_seen(local, gpus, tmp_path):
    assert (
        checked(local.project(hosts=_seeing([0], local, tmp_path, gpus=[0], workers=1)))["errors"]
        == []
    )


def test_what_no_task_needs_is_but_a_note(local, gpus, tmp_path):
    made = _seeing([0, 1], local, tmp_path, gpus=[0, 1, 5])
    told = checked(local.project(hosts=made))
    assert told["errors"] == []
    assert any(n.startswith("here: hosts.toml gives it GPU 5, and nvid") for n in told["notes"])


def test_gpus_that_hosts_toml_forgets_are_noted(local, gpus, tmp_path):
    [note] = checked(local.project(hosts=_seeing([0, 1], local, tmp_path)))["notes"]
    assert note == (
        "here: hosts.toml says nothing of its 2 GPUs, so its tasks see none\n"
        "  gpus = 2 gives them to its workers"
    )


def _seeing(seen, world, folder, **more):
    (folder / "tensorflow.py").write_text(TENSORFLOW.format("2.21.0", seen))
    env = {"env": {"PYTHONPATH": str(folder)}}
    return {name: host | env | more for name, host in world.hosts().items()}


@pytest.mark.slow
def test_ctrl_c_is_heard_while_a_host_takes_its_time(local, tmp_path):
    (tmp_path / "tensorflow.py").write_text("import time; time.sleep(30)")
    env = {"env": {"PYTHONPATH": str(tmp_path)}}
    hosts = {name: host | env for name, host in local.hosts().items()}
    project = local.project(hosts=hosts)
    with project.begun("check") as checking:
        until(lambda: _imports(tmp_path), "the import")
        assert checking.interrupted() == 130
        assert checking.said == "\ninterrupted\n"


def _imports(folder):
    """Whether a process imports from there."""
    environ = f"PYTHONPATH={folder}".encode()
    return any(environ in _environ(path) for path in Path("/proc").glob("[0-9]*/environ"))


def _environ(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_who_does_not_let_anybody_in_is_said(tmp_path):
    open_port, closed = free_ports(2)
    with socket.create_server(("127.0.0.1", open_port)):
        at = [{"address": "127.0.0.1", "port": port} for port in (open_port, closed)]
        assert doors.knock(at, 5.0) == {"answers": ["", "Connection refused"]}


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("raise ImportError('libcuda is gone')", "ImportError: libcuda is gone"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "its import ended with SIGILL"),
        ("import os; os._exit(3)", "its import ended with exit 3"),
        ("import sys; sys.exit('no')", "SystemExit: no"),
    ],
)
def test_however_the_import_ends_it_is_told(tmp_path, body, error):
    (tmp_path / "tensorflow.py").write_text(body)
    assert survey.tensorflow(sys.executable, {"PYTHONPATH": str(tmp_path)}) == {"error": error}


def test_what_tensorflow_prints_at_its_import_is_no_answer(tmp_path):
    (tmp_path / "tensorflow.py").write_text("print('{}')\n" + TENSORFLOW.format("2.21.0", [3]))
    env = {"PYTHONPATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": "3"}
    found = {"version": "2.21.0", "gpus": 1}
    assert survey.tensorflow(sys.executable, env) == found
