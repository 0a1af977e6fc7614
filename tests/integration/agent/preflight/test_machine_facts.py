"""What a machine reports of itself before it has a hosts.toml."""

from __future__ import annotations

import os
import shutil
import sys

import pytest

from tfdeploy.agent.preflight import machine_facts


@pytest.fixture
def environments(home, tmp_path, monkeypatch):
    """An empty home directory and PATH; return a function that makes a Python there."""
    monkeypatch.setenv("PATH", str(tmp_path / "no"))
    monkeypatch.setattr(machine_facts, "_login_python", lambda: "")
    monkeypatch.setattr(
        machine_facts,
        "ENVIRONMENTS",
        tuple(
            each.replace("/opt/", "~/opt/")
            for each in machine_facts.ENVIRONMENTS
            if each.startswith(("~", "/opt"))
        ),
    )

    def make(folder, tensorflow="2.21.0", *, virtual=True, on_path=False):
        root = home / folder
        (root / "bin").mkdir(parents=True)
        for name in ("python", "python3"):
            (root / "bin" / name).symlink_to(os.path.realpath(sys.executable))
        if virtual:
            base = os.path.dirname(os.path.realpath(sys.executable))
            (root / "pyvenv.cfg").write_text(f"home = {base}\n")
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        packages = root / "lib" / f"python{version}" / "site-packages"
        if tensorflow:
            (packages / "tensorflow").mkdir(parents=True)
            (packages / "tensorflow" / "__init__.py").write_text("raise SystemExit(1)")
            described = packages / f"tensorflow_cpu-{tensorflow}.dist-info"
            described.mkdir()
            (described / "METADATA").write_text(f"Name: tensorflow-cpu\nVersion: {tensorflow}\n")
        if on_path:
            monkeypatch.setenv("PATH", str(root / "bin"))

    return make


def found(pythons=(), *, is_controller=False):
    facts = machine_facts.explore([*pythons], "tensorflow", is_controller)
    return {p.path: p.framework for p in facts.pythons}


@pytest.mark.parametrize(
    "folder",
    (
        *("tf", ".venv", "project/.venv", "miniconda3/envs/tf", ".pyenv/versions/3.11.2", "a b"),
        *("opt/tf", "opt/tf/.venv"),
    ),
)
def test_an_environment_with_tensorflow_is_found_without_importing_it(environments, folder):
    environments(folder)
    assert found() == {f"~/{folder}/bin/python": "2.21.0"}


@pytest.mark.parametrize(
    ("clone", "tried"), [("project", False), ("project/.venv", False), (".", True)]
)
def test_the_python_of_a_clone_is_not_run_unasked(environments, home, clone, tried):
    environments("project/.venv")
    (home / clone / ".git").mkdir()
    assert found() == ({"~/project/.venv/bin/python": "2.21.0"} if tried else {})


def test_the_python_of_a_clone_outside_of_the_home_is_not_run_unasked(
    environments, home, monkeypatch
):
    environments("opt/clone/.venv")
    (home / "opt/clone/.git").mkdir()
    outside = str(home / "opt/*/.venv")
    monkeypatch.setattr(machine_facts, "ENVIRONMENTS", (outside,))
    (home / "user").mkdir()
    monkeypatch.setenv("HOME", str(home / "user"))
    assert found() == {}


@pytest.mark.parametrize(
    ("folder", "tried"),
    [
        *((each, False) for each in ("demo", "demo/.venv", "demo/venv", "demo/envs/a", ".venv")),
        *((each, True) for each in (".virtualenvs/a", ".conda/envs/a", "miniconda3/envs/listed")),
    ],
)
def test_on_the_controller_no_python_is_run_that_an_archive_may_have_brought(
    environments, home, folder, tried
):
    environments(folder)
    (home / ".conda").mkdir(exist_ok=True)
    (home / ".conda/environments.txt").write_text(f"relative\n\n{home}/miniconda3/envs/listed\n")
    assert found(is_controller=True) == ({f"~/{folder}/bin/python": "2.21.0"} if tried else {})
    assert found() != {}


def test_the_environment_of_another_framework_is_found(environments, home):
    environments("tf")
    [packages] = home.glob("tf/lib/python3*/site-packages")
    (packages / "torch").mkdir()
    (packages / "torch-2.9.1.dist-info").mkdir()
    (packages / "torch-2.9.1.dist-info/METADATA").write_text("Name: torch\nVersion: 2.9.1\n")
    assert [p.framework for p in machine_facts.explore([], "torch", False).pythons] == ["2.9.1"]
    assert not machine_facts.explore([], "jax", False).pythons


def test_an_environment_without_tensorflow_is_skipped(environments):
    environments("tf", tensorflow="")
    assert found() == {}


def test_an_activated_environment_is_named_by_its_path(environments):
    environments("tf", on_path=True)
    assert found() == {"~/tf/bin/python3": "2.21.0"}


def test_a_python_that_is_named_is_looked_at_once(environments, home):
    environments("tf")
    paths = [str(home / "tf/bin/python"), str(home / "none/bin/python"), "relative", ""]
    assert found(paths) == {"~/tf/bin/python": "2.21.0"}


def test_a_broken_python_is_skipped(environments, home):
    environments("tf")
    (home / "tf/bin/python").unlink()
    (home / "tf/bin/python").write_text("no program")
    assert found() == {}


def test_the_python_of_the_path_is_named_python3(monkeypatch):
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin")
    monkeypatch.setenv("PATH", os.path.dirname(python))
    first = machine_facts.explore([], "tensorflow", False).pythons[0]
    assert first.path == "python3"


def test_the_size_and_the_addresses_are_those_of_this_machine():
    facts = machine_facts.explore([], "tensorflow", False)
    assert facts.cpus == len(os.sched_getaffinity(0))
    assert facts.memory_bytes > 1 << 28
    assert not [address for address in facts.addresses if address.startswith(("127.", "::1"))]
