"""`tfdeploy check` finds what would make a start fail, before anything is started."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from support.nvidia_smi import StubNvidiaSmi
from support.waiting import until

from tfdeploy.agent.machine import interfaces

pytestmark = pytest.mark.slow

# The part of TensorFlow that check uses.
TENSORFLOW = """
import os
__version__ = "{}"
shown = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
class config:
    list_physical_devices = staticmethod(lambda kind: [kind for each in shown if int(each) in {}])
"""


# The part of PyTorch: NVIDIA's driver knows two GPUs, CUDA may not.
TORCH = """
__version__ = "2.11.0"
class cuda:
    device_count = staticmethod(lambda: 2)
    is_available = staticmethod(lambda: {})
"""


@pytest.fixture
def make_project(world, tmp_path):
    """Make a project on hosts whose Python imports a TensorFlow of a version; `more` are keys of
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
    """Two GPUs on this machine."""
    stub = StubNvidiaSmi(tmp_path / "smi", 2)
    monkeypatch.setenv("PATH", f"{stub.folder}:{os.environ['PATH']}")
    return stub


def check(project, exit_code=0):
    done = project.tf("check", "--json")
    assert done.returncode == exit_code, done.stdout + done.stderr
    document = json.loads(done.stdout)
    return {
        **document,
        **{kind: list(map(text_of, document[kind])) for kind in ("errors", "notes")},
    }


def text_of(problem):
    """Return the text that a user reads of a problem."""
    about = " on ".join(filter(None, (problem["task"], problem["host"])))
    output = ": ".join(filter(None, (about, problem["message"])))
    return "\n  ".join(filter(None, (output, problem["hint"])))


def test_an_error_in_json_has_its_host_and_its_hint(by_ssh):
    hosts = {"one": {**by_ssh.hosts()["one"], "python": "/no/python"}, "two": by_ssh.hosts()["two"]}
    project = by_ssh.project(hosts=hosts, training={"ready": "process"})
    document = json.loads(project.tf("check", "--json").stdout)
    error = next(error for error in document["errors"] if error["host"] == "one")
    assert error["task"] is None
    assert error["message"].startswith("can't run /no/python: ")
    assert error["hint"].startswith("set the host's python in hosts.toml")


def test_hosts_that_can_run_the_tasks_are_shown_in_a_table(make_project):
    project = make_project()
    output = project.ok("check").splitlines()
    names = ", ".join(project.hosts)
    assert re.fullmatch(rf"{names} +3\.\d+\.\d+ +2\.21\.0 +- +3\.\S+ +[\d.]+ [GT]B *", output[1])
    hosts = "1 host" if len(project.hosts) == 1 else "2 hosts"
    assert output[2:] == [f"ready to start 3 tasks on {hosts}: tfdeploy run"]
    document = check(project)
    assert (document["errors"], document["notes"]) == ([], [])
    assert {host["tensorflow"] for host in document["hosts"].values()} == {"2.21.0"}
    assert all(abs(host["ahead_s"]) < 5 for host in document["hosts"].values())


def test_check_starts_nothing_and_leaves_no_port_open(make_project):
    project = make_project()
    check(project)
    assert not (project.folder / "runs").exists()
    assert not any(project.on(host).exists() for host in project.hosts)
    project.ok("push")
    project.ok("start")
    assert set(project.status()) == {"ps:0", "worker:0", "worker:1"}


def test_what_keeps_the_program_from_starting_is_an_error_with_what_to_do(make_project, tmp_path):
    project = make_project()
    (project.folder / "helpers.py").write_text("x = 1\ndef f(:\n")
    (project.folder / ".gitignore").write_text("secret.py")
    (project.folder / "secret.py").touch()
    (project.folder / "lib/far").mkdir(parents=True)
    (project.folder / "lib/far/own.py").touch()
    lines = [
        "import tensorflow, helpers, no_such_module_1, yaml_of_nobody",
        "from tensorflow.examples import mnist",
        "import secret, own",
        "try:",
        "    import no_such_module_2",
        "except ImportError:",
        "    pass",
        f"open({str(tmp_path / 'ran')!r}, 'w')",
    ]
    (project.folder / "other.py").write_text("\n".join(lines))
    project.training["command"] = "python other.py"
    project.write()
    errors = check(project, 1)["errors"]
    for name, host in project.hosts.items():
        own = [error.removeprefix(f"{name}: ") for error in errors if error.startswith(f"{name}: ")]
        syntax, tensorflow, secret, packages = own
        assert syntax.startswith(
            "helpers.py, line 2: SyntaxError: invalid syntax\n  correct it for "
        )
        assert tensorflow.startswith("other.py, line 2: ModuleNotFoundError: No module named ")
        assert "and TensorFlow 2.21.0, or install other versions" in tensorflow
        assert secret.endswith(
            "\n  source.exclude or a rule of git leaves the file out: correct that"
        )
        assert packages == (
            f"{host['python']} has no no_such_module_1 (other.py, line 1), yaml_of_nobody "
            "(other.py, line 1)\n  install it there; or in hosts.toml, below [env]: "
            'requirements = ["tensorflow", "no_such_module_1", "yaml_of_nobody"]'
        )
    assert not (tmp_path / "ran").exists()
    project.training["imports"] = ["tensorflow"]
    project.write()
    assert all("helpers.py" in error for error in check(project, 1)["errors"])


def test_a_keras_whose_fit_fails_is_an_error_and_so_is_a_missing_keras_2(local, tmp_path):
    metadata = "Metadata-Version: 2.1\nName: keras\nVersion: 3.15.1\n"
    (tmp_path / "keras-3.15.1.dist-info").mkdir()
    (tmp_path / "keras-3.15.1.dist-info/METADATA").write_text(metadata)
    (tmp_path / "tensorflow.py").write_text(TENSORFLOW.format("2.21.0", []))
    hosts = {"here": local.hosts()["here"] | {"env": {"PYTHONPATH": str(tmp_path)}, "workers": 2}}
    project = local.project(hosts=hosts)
    lines = [
        "import tensorflow as tf",
        "with tf.distribute.MultiWorkerMirroredStrategy().scope():",
        "    model = tf.keras.Sequential()",
        "model.fit(data, epochs=3)",
    ]
    (project.folder / "train.py").write_text("\n".join(lines))
    [error] = check(project, 1)["errors"]
    assert error.startswith(
        "here: train.py, line 4: fit of Keras 3 fails under MultiWorkerMirrored"
    )
    project.training["env"] = {"TF_USE_LEGACY_KERAS": "1"}
    project.write()
    [error] = check(project, 1)["errors"]
    assert "has no tf_keras (train.py for TF_USE_LEGACY_KERAS)\n" in error
    (tmp_path / "tf_keras.py").touch()
    assert check(project)["errors"] == []


def test_a_missing_tensorflow_is_only_a_note_if_the_command_is_not_python(world):
    document = check(world.project(training={"command": "sleep 100", "role": "tf_config"}))
    assert document["errors"] == []
    assert all("can't import TensorFlow" in note for note in document["notes"])


def test_ports_that_a_run_holds_are_errors_that_name_the_run(make_project):
    project = make_project()
    project.flags = ["--hold"]
    project.write()
    project.ok("push")
    project.ok("start")
    errors = check(project, 1)["errors"]
    assert len(errors) == 3 + 1  # the ports of the tasks and of the run's heartbeat
    assert all(f"of run {project.runs[-1]} of {project.name}" in error for error in errors)
    assert all(f"tfdeploy stop --run {project.runs[-1]}" in error for error in errors)


def test_a_missing_program_is_an_error(make_project):
    project = make_project()
    project.training["command"] = "/no/python train.py"
    project.write()
    errors = check(project, 1)["errors"]
    assert {error.splitlines()[0].partition(": ")[2] for error in errors} == {
        f"the program /no/python of {task} is not on this host"
        for task in ("ps:0", "worker:0", "worker:1")
    }


def test_tensorflow_is_imported_with_the_environment_of_the_tasks(world, tmp_path):
    """With the PATH of the tasks and the env of their job, and not from the home directory."""
    (tmp_path / "job").mkdir()
    (tmp_path / "job/tensorflow.py").write_text(TENSORFLOW.format("2.21.0", []))
    hosts = world.hosts()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").symlink_to(next(iter(hosts.values()))["python"])
    hosts = {name: host | {"python": "python3"} for name, host in hosts.items()}
    env = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "PYTHONPATH": str(tmp_path / "job")}
    training = {job: {"env": env} for job in ("ps", "worker")}
    project = world.project(hosts=hosts, training=training)
    (project.folder / "train.py").write_text("import tensorflow")
    json_module = project.folder.parent / "json.py"
    json_module.write_text("raise ImportError")
    assert check(project)["errors"] == []
    json_module.unlink()


def test_what_a_spare_host_lacks_is_only_a_note(by_ssh, tmp_path):
    (tmp_path / "tensorflow.py").write_text(TENSORFLOW.format("2.21.0", []))
    hosts = by_ssh.hosts()
    spare = hosts["two"] | {"directory": str(tmp_path / "three"), "workers": 0, "spare": True}
    document = check(by_ssh.project(hosts=hosts | {"three": spare, "two": hosts["two"]}), 1)
    assert {error.split(":")[0] for error in document["errors"]} == {"one", "two"}
    assert {note.split(":")[0] for note in document["notes"]} == {"three"}
    own = {"worker": {"env": {"PYTHONPATH": str(tmp_path)}}}
    document = check(by_ssh.project(hosts=hosts | {"three": spare}, training=own), 1)
    assert {error.split(":")[0] for error in document["errors"]} == {"one"}  # the ps's host
    assert document["notes"] == []


def test_each_program_is_searched_in_the_path_of_its_own_task(make_project, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/myps").symlink_to("/bin/true")
    project = make_project()
    path = {"env": {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}}
    project.training |= {"ps": {"command": "myps", **path}}
    project.write()
    assert check(project)["errors"] == []
    project.training |= {"ps": {"command": "myps"}, "worker": path}
    project.write()
    [error] = check(project, 1)["errors"]
    assert "the program myps of ps:0 is not on this host" in error


def test_ports_need_not_be_reached_if_ready_is_process(by_ssh, tmp_path):
    env = {"env": {"PYTHONPATH": str(tmp_path)}}
    (tmp_path / "tensorflow.py").write_text(TENSORFLOW.format("2.21.0", []))
    hosts = {name: host | env for name, host in by_ssh.hosts().items()}
    hosts["one"] |= {"address": "255.255.255.255"}
    assert check(by_ssh.project(hosts=hosts, training={"ready": "process"}))["errors"] == []
    [error] = check(by_ssh.project(hosts=hosts), 1)["errors"]
    assert error.startswith("ps:0 on one: two can't reach one at 255.255.255.255, on the port of")


def test_ports_that_the_start_will_choose_are_checked_too(make_project):
    assert check(make_project(ports="auto"))["errors"] == []


def test_hosts_that_share_a_directory_are_an_error_with_the_line_to_write(by_ssh, tmp_path):
    hosts = {n: host | {"directory": str(tmp_path / "home")} for n, host in by_ssh.hosts().items()}
    errors = check(by_ssh.project(hosts=hosts), 1)["errors"]
    assert any(f'directory = "{tmp_path}/home/{{host}}"' in error for error in errors)


def test_gpus_are_listed(local, gpus, tmp_path):
    project = local.project(hosts=_hosts_that_see([0, 1], local, tmp_path, gpus=2))
    document = check(project)
    assert document["hosts"]["here"]["gpus"] == ["NVIDIA H100 80GB HBM3"] * 2
    assert document["notes"] == []
    assert "0,1 NVIDIA H100" in project.ok("check")


def test_a_gpu_that_a_foreign_process_uses_is_an_error_unless_it_is_shared(local, gpus, tmp_path):
    gpus.use(1, os.getpid(), mib=3000)
    hosts = _hosts_that_see([0, 1], local, tmp_path, gpus=2)
    [error] = check(local.project(hosts=hosts), 1)["errors"]
    assert error.startswith(f"here: GPU 1 is taken by pid {os.getpid()} (")
    assert "2.9 of its 79.6 GiB are in use" in error
    assert "gpus_shared = true" in error
    hosts["here"]["gpus_shared"] = True
    assert check(local.project(hosts=hosts))["errors"] == []


@pytest.mark.parametrize(
    ("listed", "visible", "expected"),
    [
        (2, [], "here: TensorFlow 2.21.0 sees 0 of its 2 GPUs"),
        ([0, 2], [0, 2], "here: hosts.toml lists GPU 2, but it has 2 GPUs"),
        ([2, 4], [0, 1], "here: hosts.toml lists GPUs 2,4, but it has 2 GPUs"),
    ],
)
def test_gpus_that_tasks_could_not_use_are_an_error(
    local, gpus, tmp_path, listed, visible, expected
):
    document = check(local.project(hosts=_hosts_that_see(visible, local, tmp_path, gpus=listed)), 1)
    assert [error.splitlines()[0] for error in document["errors"]] == [expected]


@pytest.mark.parametrize("seen", [0, 2])
def test_a_pytorch_that_sees_no_gpu_is_an_error(local, gpus, tmp_path, seen):
    (tmp_path / "torch.py").write_text(TORCH.format(bool(seen)))
    more = {"gpus": 2, "env": {"PYTHONPATH": str(tmp_path)}}
    hosts = {name: {**host, **more} for name, host in local.hosts().items()}
    document = check(local.project(hosts=hosts, training={"imports": ["torch"]}), int(seen == 0))
    words = "here: PyTorch 2.11.0 sees 0 of its 2 GPUs"
    assert [error.splitlines()[0] for error in document["errors"]] == [words] * (seen == 0)


def test_an_nvidia_smi_that_fails_is_an_error(local, gpus, tmp_path):
    gpus.behave("fails")
    document = check(local.project(hosts=_hosts_that_see([], local, tmp_path, gpus=2)), 1)
    [error] = document["errors"]
    assert error.startswith("here: nvidia-smi fails: NVIDIA-SMI has failed because it couldn't co")


def test_a_gpu_that_no_task_uses_need_not_be_visible_to_tensorflow(local, gpus, tmp_path):
    assert (
        check(local.project(hosts=_hosts_that_see([0], local, tmp_path, gpus=[0], workers=1)))[
            "errors"
        ]
        == []
    )


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ([0, 1, 5], "here: hosts.toml lists GPU 5, but it has 2 GPUs\n  correct the host's gpus"),
        (4, "here: hosts.toml has gpus = 4, but it has 2 GPUs\n  set the host's gpus = 2"),
    ],
)
def test_a_missing_gpu_that_no_task_uses_is_only_a_note(local, gpus, tmp_path, listed, expected):
    hosts = _hosts_that_see([0, 1], local, tmp_path, gpus=listed)
    document = check(local.project(hosts=hosts))
    assert document["errors"] == []
    assert any(note.startswith(expected) for note in document["notes"]), document["notes"]


def test_gpus_that_hosts_toml_does_not_list_are_noted(local, gpus, tmp_path):
    [note] = check(local.project(hosts=_hosts_that_see([0, 1], local, tmp_path)))["notes"]
    assert note == (
        "here: it has 2 GPUs, but hosts.toml lists none: its tasks see no GPU\n"
        "  gpus = 2 gives them to its workers"
    )


def _hosts_that_see(visible, world, folder, **more):
    (folder / "tensorflow.py").write_text(TENSORFLOW.format("2.21.0", visible))
    env = {"env": {"PYTHONPATH": str(folder)}}
    return {name: host | env | more for name, host in world.hosts().items()}


def test_ctrl_c_works_while_a_host_is_slow(local, tmp_path):
    (tmp_path / "tensorflow.py").write_text("import time; time.sleep(30)")
    env = {"env": {"PYTHONPATH": str(tmp_path)}}
    hosts = {name: host | env for name, host in local.hosts().items()}
    project = local.project(hosts=hosts)
    with project.start_command("check") as checking:
        until(lambda: _is_importing(tmp_path), "the import")
        assert checking.interrupt() == 130
        assert checking.output == "\ninterrupted\n"


def _is_importing(folder):
    """Return whether a process imports from this folder."""
    environ = f"PYTHONPATH={folder}".encode()
    return any(environ in _environ(path) for path in Path("/proc").glob("[0-9]*/environ"))


def _environ(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.slow
def test_other_addresses_of_a_host_are_tried_if_its_own_fails(by_ssh):
    hosts = by_ssh.hosts()
    hosts["one"]["address"] = "203.0.113.1"  # TEST-NET-3, which no machine has
    project = by_ssh.project(hosts=hosts, training={"imports": []})
    document = json.loads(project.tf("check", "--network", "--yes", "--json").stdout)
    notes = map(text_of, document["notes"])
    [note] = [each for each in notes if "its address fails" in each]
    assert note.startswith("one: two → one: ")
    proposed = re.search(r'set hosts\.one\.address = "(.+)"', note)
    assert proposed[1] in dict(interfaces.addresses())


def test_the_network_is_not_measured_beside_a_live_run_without_being_asked(by_ssh):
    project = by_ssh.started("--hold", training={"imports": []})
    done = project.tf("check", "--network")
    assert done.returncode == 1
    assert "it runs " in done.stderr
    assert "--yes measures beside them" in done.stderr
    there, back = json.loads(project.tf("check", "--network", "--yes", "--json").stdout)["links"]
    assert {there["source"]["host"], back["source"]["host"]} == {*project.hosts}
    assert there["source"] == back["target"]
    assert min(there["bits_s"], back["bits_s"], there["round_trip_s"]) > 0
    assert (there["error"], there["source"]["interface"]) == (None, None)
    assert set(project.status()) == {"ps:0", "worker:0", "worker:1"}
