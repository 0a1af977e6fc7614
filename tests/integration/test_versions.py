"""What the tasks of one run have imported: a start refuses tasks that can't train together."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.slow

# The part of TensorFlow that its version needs.
TENSORFLOW = """
__version__ = "{}"
class sysconfig:
    get_build_info = staticmethod(lambda: {{"cuda_version": "{}"}})
class config:
    list_physical_devices = staticmethod(lambda kind: [])
"""
SCRIPT = ["python", "-c", "import tensorflow; exec(open('train.py').read())", "--hold"]


def make_project(world, tmp_path, one, two, **training):
    """Make a project whose two hosts have these versions of TensorFlow and of CUDA."""
    hosts = world.hosts()
    for name, versions in zip(hosts, (one, two), strict=True):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "tensorflow.py").write_text(TENSORFLOW.format(*versions))
        hosts[name] |= {"env": {"PYTHONPATH": str(folder)}}
    return world.project(hosts=hosts, training={"command": SCRIPT, **training})


def test_a_start_with_two_minor_versions_is_refused_in_the_words_of_check(world, tmp_path):
    project = make_project(world, tmp_path, ("2.15.1", "12.2"), ("2.16.2", "12.3"))
    first, second = project.hosts
    words = (
        f"TensorFlow 2.15.1 on {first}, 2.16.2 on {second}: the tasks of one run need the same "
        "minor version"
    )
    started = project.tf("start", "--push")
    assert started.returncode == 1
    assert words in " ".join(started.stderr.split())
    assert 'versions = "any" in [training] starts anyway' in " ".join(started.stderr.split())
    assert not project.processes()
    checked = project.tf("check", "--json")
    assert checked.returncode == 1
    assert [error["message"] for error in json.loads(checked.stdout)["errors"]] == [words]


@pytest.mark.parametrize(
    ("ready", "command"),
    [
        ("process", "start"),
        ("rendezvous", "start"),
        ("port", "start"),
        ("process", "start --queue"),
    ],
)
def test_tasks_that_are_ready_before_an_import_are_compared_by_what_is_installed(
    world, tmp_path, ready, command
):
    hosts = world.hosts()
    for (name, host), version in zip(hosts.items(), ("0.9.2", "0.10.0"), strict=True):
        (tmp_path / name / f"jax-{version}.dist-info").mkdir(parents=True)
        host["env"] = {"PYTHONPATH": str(tmp_path / name)}
    project = world.project(hosts=hosts, training={"ready": ready, "imports": ["jax"]})
    first, second = hosts
    started = project.tf(*command.split(), "--push")
    assert started.returncode == 1, started.stdout
    words = f"JAX 0.10.0 on {second}, 0.9.2 on {first}: the tasks of one run need the same minor"
    assert words in " ".join(started.stderr.split())
    assert not project.processes()


@pytest.mark.parametrize("command", ["run", "attach"])
def test_what_a_shell_imports_after_ready_is_compared_while_the_run_is_followed(
    world, tmp_path, command
):
    script = "sleep 2; exec python3 -c 'import tensorflow; exec(open(\"train.py\").read())'"
    training = {"ready": "process", "command": ["bash", "-c", script]}
    project = make_project(world, tmp_path, ("2.15.1", ""), ("2.16.2", ""), **training)
    first, second = project.hosts
    started = project.tf("start", "--push") if command == "attach" else None
    assert started is None or started.returncode == 0, started.stderr
    followed = project.tf(command)
    words = f"note: TensorFlow 2.15.1 on {first}, 2.16.2 on {second}: the tasks of one run need the"
    assert " ".join(followed.stderr.split()).count(words) == 1


def test_other_differences_are_one_note_of_the_start(world, tmp_path):
    versions = ("2.15.1", "12.2"), ("2.16.2", "12.3")
    project = make_project(world, tmp_path, *versions, versions="any")
    first, second = project.hosts
    started = project.tf("start", "--push")
    assert started.returncode == 0, started.stderr
    words = (
        f"hosts differ: CUDA 12.2 on {first}, 12.3 on {second}; "
        f"TensorFlow 2.15.1 on {first}, 2.16.2 on {second}"
    )
    assert " ".join(started.stderr.split()).count(words) == 1
    task = project.status()["worker:0"]
    assert (task["versions"]["tensorflow"], task["versions"]["CUDA"]) == versions[1]
