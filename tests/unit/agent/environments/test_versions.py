"""What is installed where a task runs is read from the names of folders."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata

from support.builders import change_launch, make_launch

from tfdeploy.agent.environments import versions


def virtual_environment(folder, config, *distributions):
    packages = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    for each in distributions:
        (packages / each).mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "pyvenv.cfg").write_text(config)
    (folder / "bin/python").symlink_to(os.path.realpath(sys.executable))
    return versions.installed(make_launch(argv=[str(folder / "bin/python")]))


def test_the_packages_of_this_python_have_the_versions_that_it_imports():
    found = versions.installed(make_launch(argv=[sys.executable]))
    assert found["pytest"] == metadata.version("pytest")
    assert found["Linux"] == platform.release()
    assert platform.python_version().startswith(found["Python"])


def test_a_virtual_environment_may_have_those_of_the_user_too(tmp_path, monkeypatch):
    own = ("My_Package-1.2rc1+cpu.dist-info", "old-3-py3.8.egg-info", "no_version", "x.py")
    alone = virtual_environment(tmp_path / "a", "include-system-site-packages = false\n", *own)
    assert {name: alone[name] for name in alone if name[0].islower()} == {
        "my-package": "1.2rc1+cpu", "old": "3",
    }  # fmt: skip
    user = tmp_path / "home/.local"
    shadowed = "my_package-9.dist-info"
    virtual_environment(user, "", shadowed, "only_of_user-1.dist-info")
    monkeypatch.setenv("HOME", str(user.parent))
    both = virtual_environment(tmp_path / "b", "include-system-site-packages = true\n", *own)
    assert (both["my-package"], both["only-of-user"]) == ("9", "1")


def test_what_the_environment_adds_to_the_path_comes_first(tmp_path):
    virtual_environment(tmp_path / "a", "", "jax-0.9.2.dist-info", "optax-1.dist-info")
    (tmp_path / "more/jax-0.10.0.dist-info").mkdir(parents=True)
    path = f"{tmp_path}/more:relative:{tmp_path}/gone"
    launch = make_launch(argv=[str(tmp_path / "a/bin/python")], env={"PYTHONPATH": path})
    found = versions.installed(launch)
    assert (found["jax"], found["optax"]) == ("0.10.0", "1")


def test_only_frameworks_of_tasks_with_peers_are_compared(tmp_path):
    own = ("tensorflow_cpu-2.16.1.dist-info", "torch-2.3.0+cu121.dist-info", "optax-1.dist-info")
    virtual_environment(tmp_path / "a", "", *own)
    launch = make_launch(argv=[str(tmp_path / "a/bin/python")], port=2222)
    found = versions.of_frameworks([launch, make_launch(argv=["/bin/sh"])])
    assert found == {"tensorflow": "2.16.1", "torch": "2.3.0+cu121"}
    assert not versions.of_frameworks([change_launch(launch, port=None)])


def test_of_another_program_only_the_drivers_are_known(tmp_path, monkeypatch):
    driver = tmp_path / "version"
    driver.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\n")
    monkeypatch.setattr(versions, "NVIDIA", str(driver))
    found = versions.installed(make_launch(argv=["/bin/sh"]))
    assert found == {"Linux": platform.release(), "NVIDIA driver": "550.54.15"}


def test_a_setting_that_is_no_utf8_hides_no_package(tmp_path):
    virtual_environment(tmp_path / "a", "", "one-1.dist-info")
    (tmp_path / "a/pyvenv.cfg").write_bytes("home = /home/José\n".encode("latin-1"))
    found = versions.installed(make_launch(argv=[str(tmp_path / "a/bin/python")]))
    assert found["one"] == "1"
