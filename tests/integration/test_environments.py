"""`push` builds environments on hosts behind a real sshd, and `start` requires them."""

from __future__ import annotations

import json
import os
import re
import shutil

import pytest
from support import wheels
from support.ports import ADDRESS, free_ports
from support.waiting import until

from tfdeploy.environments import wheelhouse

pytestmark = pytest.mark.slow

TRAIN = """
import os, sys
from pathlib import Path
import tiny
print("tiny", tiny.VERSION, sys.prefix, os.environ["VIRTUAL_ENV"], flush=True)
Path("ran").touch()
"""


@pytest.fixture
def on_two(by_ssh, tmp_path, monkeypatch):
    """A project on two hosts that find packages in a folder of wheels."""
    return make_project(by_ssh, tmp_path, monkeypatch, {"PIP_FIND_LINKS": str(tmp_path / "wheels")})


@pytest.fixture
def project(on_two):
    """The same on one host: to build an environment takes 3 s of CPU time."""
    del on_two.hosts["two"]
    on_two.write()
    return on_two


@pytest.fixture
def isolated(by_ssh, tmp_path, monkeypatch):
    """A project on two hosts that have no way to packages; the controller has one."""
    return make_project(by_ssh, tmp_path, monkeypatch, {})


def make_project(by_ssh, tmp_path, monkeypatch, env):
    wheels.make(tmp_path / "wheels", "tiny", requires=("dependency",))
    wheels.make(tmp_path / "wheels", "dependency")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    common = {"address": ADDRESS, "workers": 1}
    hosts = {
        name: {
            **common,
            "env": {"PIP_NO_INDEX": "1", **env},
            "ports": free_ports(3),
            "directory": str(tmp_path / name),
        }
        for name in ("one", "two")
    }
    made = by_ssh.project(
        hosts=hosts, top={"env": {"requirements": "requirements.txt"}},
        training={"command": ["python", "run.py"], "ready": "process"},
    )  # fmt: skip
    (made.folder / "run.py").write_text(TRAIN)
    (made.folder / "requirements.txt").write_text("tiny\n")
    return made


def environments(project):
    """Return the folders of environments on each host, whatever is in them."""
    return {
        host: [p for p in project.on(host).glob("envs/*") if p.is_dir()] for host in project.hosts
    }


def refusal(project, *words):
    done = project.tf(*words)
    assert done.returncode != 0, done.stdout
    return done.stderr


def test_a_run_trains_in_the_environment_that_push_built(on_two):
    first = on_two.ok("push")
    assert re.search(r"built environment [0-9a-f]{16} on (one, two|one and two)\n", first), first
    out = on_two.ok("run")
    assert "is already on" in out
    for host, [folder] in environments(on_two).items():
        assert f"@{host} | tiny 1.0 {folder} {folder}" in out


def test_start_refuses_a_host_on_which_it_is_not_built(project):
    project.ok("push")
    (project.folder / "requirements.txt").write_text("tiny==1.0\n")
    errors = refusal(project, "start")
    assert "its environment ([env] in hosts.toml) is not built" in errors
    assert "tfdeploy push" in errors
    assert not (project.folder / "runs").exists()


def test_resume_builds_the_environment_of_the_run_again_if_it_can(project):
    (project.folder / "run.py").write_text(TRAIN + "import time; time.sleep(600)\n")
    project.ok("push")
    project.ok("start")
    project.ok("stop")
    for [folder] in environments(project).values():
        shutil.rmtree(folder)
    (project.folder / "requirements.txt").write_text("tiny==1.0\n")
    errors = refusal(project, "resume")
    assert "the run's environment is not on one, and env.requirements has changed" in errors
    (project.folder / "requirements.txt").write_text("tiny\n")
    project.ok("resume")
    assert {task["state"] for task in project.status().values()} == {"READY"}
    project.ok("stop")


def test_hosts_without_a_way_to_packages_get_wheels_from_the_controller(isolated):
    isolated.ok("push")
    for host, [folder] in environments(isolated).items():
        assert {p.name for p in folder.glob("lib/*/site-packages/*.py")} == {
            "tiny.py",
            "dependency.py",
        }
        [release] = isolated.on(host).glob("releases/env-wheels-*")
        assert len([*release.glob("*.whl")]) == 2


def test_the_controllers_wheels_have_no_second_tensorflow(tmp_path, monkeypatch):
    for name in ("tensorflow", "tensorflow_cpu"):
        wheels.make(tmp_path, name, "2.21")
    wheels.make(tmp_path, "tf_keras", "2.21", requires=("tensorflow",))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    target = wheelhouse.WheelTarget("3.11", "x86_64", "glibc 2.36")
    found = wheelhouse.versions(["tensorflow-cpu==2.21", "tf_keras==2.21"], target)
    assert found == {"tensorflow-cpu": "2.21", "tf-keras": "2.21"}


@pytest.mark.parametrize(
    ("machine", "libc", "tag"),
    [
        ("aarch64", "glibc 2.36", "manylinux_2_17_aarch64.manylinux2014_aarch64"),
        ("x86_64", "", "musllinux_1_1_x86_64"),
    ],
)
def test_the_controller_downloads_uv_for_hosts_of_another_platform(
    tmp_path, monkeypatch, machine, libc, tag
):
    program = {"uv-1.0.data/scripts/uv": "#!/bin/sh\n"}
    wheels.make(tmp_path / "wheels", "uv", tag=f"py3-none-{tag}", files=program)
    wheels.make(tmp_path / "wheels", "uv", "2.0", tag="py3-none-win_amd64")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    folder = tmp_path / "work"
    folder.mkdir()
    release = wheelhouse.uv_release(machine, libc, folder)
    assert [*release.manifest] == ["uv"]
    assert (release.root / "uv").read_text() == "#!/bin/sh\n"
    assert os.access(release.root / "uv", os.X_OK)


def test_hosts_that_cannot_get_a_package_say_why_together(isolated):
    (isolated.folder / "requirements.txt").write_text("tiny<1\n")
    errors = refusal(isolated, "push")
    assert errors.count("can't install its environment") in (1, 2)
    assert "the controller can't send wheels either" in errors
    assert environments(isolated) == {"one": [], "two": []}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tiny<1\ntiny>1\n", "you require tiny<1 and tiny>1"),
        ("foreign\n", "has no wheels with a matching platform tag"),
    ],
)
def test_what_cannot_be_installed_is_explained_and_nothing_is_left(project, tmp_path, text, words):
    wheels.make(tmp_path / "wheels", "foreign", tag="cp311-cp311-win_amd64")
    (project.folder / "requirements.txt").write_text(text)
    assert words in refusal(project, "push")
    assert environments(project) == {"one": []}


def test_a_missing_requirements_file_is_found_before_any_host_is_contacted(project):
    (project.folder / "requirements.txt").unlink()
    assert "requirements.txt does not exist" in refusal(project, "push")
    assert environments(project) == {"one": []}


def test_hosts_with_other_versions_are_named_and_do_not_start(on_two, tmp_path):
    for folder, version in (("old", "1.0"), ("new", "2.0")):
        wheels.make(tmp_path / folder, "tiny", version)
    for host, folder in (("one", "old"), ("two", "new")):
        on_two.hosts[host]["env"]["PIP_FIND_LINKS"] = str(tmp_path / folder)
    on_two.write()
    errors = refusal(on_two, "push")
    assert re.search(
        r"its environment differs from those of other hosts: tiny \d.0 instead of", errors
    )
    assert "differs" in refusal(on_two, "start")


def test_two_pushes_at_the_same_time_build_it_once(project, tmp_path):
    project.top["env"]["setup"] = ["echo built >> $VIRTUAL_ENV/../built; sleep 1"]
    wheels.make(tmp_path / "wheels", "pip")
    project.write()
    with project.start_command("push") as one, project.start_command("push") as two:
        assert [one.process.wait(), two.process.wait()] == [0, 0], one.output + two.output
    for host in project.hosts:
        assert (project.on(host) / "envs/built").read_text() == "built\n"


def test_ctrl_c_during_a_build_leaves_nothing_and_the_next_push_builds(project, tmp_path):
    go = tmp_path / "go"
    project.top["env"]["setup"] = [f"until test -e {go}; do sleep 0.05; done"]
    wheels.make(tmp_path / "wheels", "pip")
    project.write()
    with project.start_command("push") as push:
        started = [project.on(host) / "envs" for host in project.hosts]
        until(
            lambda: all([*folder.glob("*/lib/*/site-packages/tiny.py")] for folder in started),
            "setup",
        )
        push.interrupt()
    until(lambda: environments(project) == {"one": []}, "the end of the builds")
    go.touch()
    project.ok("push")


def test_prune_deletes_environments_that_no_run_uses(project):
    project.ok("push")
    project.ok("run")
    [used] = {folder.name for [folder] in environments(project).values()}
    for version in ("tiny>=0.5", "tiny>=0.6"):
        (project.folder / "requirements.txt").write_text(version)
        project.ok("push")
    newest = max(environments(project)["one"], key=lambda p: p.stat().st_mtime).name
    listed = json.loads(project.ok("runs", "--json"))["hosts"]["one"]["environments"]
    assert len(listed) == 3
    project.ok("prune", "--yes")
    for folders in environments(project).values():
        assert {folder.name for folder in folders} == {used, newest}
    project.ok("prune", "--keep", "0", "--yes")
    for folders in environments(project).values():
        assert {folder.name for folder in folders} == {newest}


def test_check_says_that_it_is_not_built_yet(project):
    done = project.tf("check")
    assert "its environment is not built yet, so the program's imports are not tried" in done.stderr
    assert "\n  tfdeploy push builds it; then check again" in done.stderr
    assert "TensorFlow" not in done.stderr
