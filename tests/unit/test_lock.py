"""The locks in requirements/ have what pyproject.toml requires: after a change, `make lock`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
LOCKS = {"run.txt": ("all", "tensorflow"), "develop.txt": ("dev", "docs", "tensorflow")}
# `make test` and `make demo` have to work on each of these.
MACHINES = [
    {"sys_platform": system, "platform_machine": machine, "python_full_version": f"{python}.1"}
    | {"python_version": python, "platform_python_implementation": "CPython"}
    | {"implementation_name": "cpython"}
    for system, machine in (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))
    for python in ("3.11", "3.12", "3.13")
]


def locked(name):
    """Return the requirements of a lock, each with its hashes."""
    text = (ROOT / "requirements" / name).read_text().replace("\\\n", " ")
    lines = [line.split(" --hash=") for line in text.splitlines() if not line.startswith("#")]
    return {Requirement(line): hashes for line, *hashes in lines}


def direct(extras):
    """Yield all direct requirements, those of other extras of tfdeploy itself included."""
    also = (ROOT / "requirements/also.in").read_text().splitlines()
    texts = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]]
    texts += [line.partition("#")[0] for line in also if not line.startswith("#")]
    texts += [text for extra in extras for text in EXTRAS[extra]]
    for each in map(Requirement, texts):
        if each.name == "tfdeploy":
            yield from direct(each.extras)
        else:
            yield each


def applies(requirement, machine):
    marker = requirement.marker
    return marker is None or marker.evaluate({**default_environment(), **machine})


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_has_each_dependency_in_a_version_that_fits(name):
    found = locked(name)
    for machine in MACHINES:
        versions = {
            canonicalize_name(each.name): str(each.specifier).removeprefix("==")
            for each in found
            if applies(each, machine)
        }
        for each in filter(lambda wanted: applies(wanted, machine), direct(LOCKS[name])):
            version = versions.get(canonicalize_name(each.name))
            assert version, f"{each} is not in requirements/{name}: make lock"
            assert each.specifier.contains(version, prereleases=True), (str(each), version)


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_has_hashes_and_no_index(name):
    assert all(locked(name).values())
    text = (ROOT / "requirements" / name).read_text()
    assert not re.search(r"://|^-|find-links", text, re.M)


def test_both_locks_have_the_same_versions():
    for machine in MACHINES:
        run, develop = (
            {f"{each.name}{each.specifier}" for each in locked(name) if applies(each, machine)}
            for name in LOCKS
        )
        assert run <= develop


def test_tensorflow_is_installed_once():
    """tf_keras requires "tensorflow", which would overwrite tensorflow-cpu."""
    for machine in MACHINES:
        names = {each.name for each in locked("develop.txt") if applies(each, machine)}
        assert len(names & {"tensorflow", "tensorflow-cpu"}) == 1
