"""Each host's environment: TensorFlow's rule, and an id that changes with the content."""

from __future__ import annotations

import pytest
from support.builders import make_inventory

from tfdeploy.environments import spec

HOSTS = "[hosts.cpu]\nworkers = 1\n[hosts.gpu]\ngpus = 1\nworkers = 1"


def specs(env='requirements = ["tensorflow==2.21", "pandas"]', hosts=HOSTS):
    return spec.for_hosts(make_inventory(hosts, top=f"[env]\n{env}"))


@pytest.mark.parametrize(
    ("requirement", "on_gpus", "without"),
    [
        ("tensorflow", "tensorflow[and-cuda]", "tensorflow-cpu"),
        ("tensorflow==2.21", "tensorflow[and-cuda]==2.21", "tensorflow-cpu==2.21"),
        ("TensorFlow >= 2, < 3", "tensorflow[and-cuda] >= 2, < 3", "tensorflow-cpu >= 2, < 3"),
        ("tensorflow~=2.20; os_name == 'x'", "tensorflow[and-cuda]~=2.20; os_name == 'x'",
         "tensorflow-cpu~=2.20; os_name == 'x'"),
    ],
)  # fmt: skip
def test_tensorflow_has_cuda_where_gpus_are(requirement, on_gpus, without):
    assert spec.apply_tensorflow_rule(requirement, has_gpus=True) == on_gpus
    assert spec.apply_tensorflow_rule(requirement, has_gpus=False) == without


@pytest.mark.parametrize(
    "requirement",
    ["tensorflow-cpu", "tensorflow[and-cuda]==2.21", "tensorflow-probability", "tensorflow_hub",
     "tensorflow @ https://host/tf.whl", "tensorflow==2.21 --hash=sha256:ab", "tf-keras", "numpy"],
)  # fmt: skip
def test_any_other_requirement_stays_as_it_is(requirement):
    for has_gpus in (True, False):
        assert spec.apply_tensorflow_rule(requirement, has_gpus=has_gpus) == requirement


def test_a_constraint_gets_no_extra():
    assert spec.apply_to_constraint("tensorflow<3", has_gpus=True) == "tensorflow<3"
    assert spec.apply_to_constraint("tensorflow<3", has_gpus=False) == "tensorflow-cpu<3"


def test_hosts_with_gpus_and_hosts_without_have_different_environments():
    found = specs()
    assert found["cpu"].lines == ("tensorflow-cpu==2.21", "pandas")
    assert found["gpu"].lines == ("tensorflow[and-cuda]==2.21", "pandas")
    assert found["cpu"].id != found["gpu"].id


def test_all_hosts_have_the_same_environment_if_they_install_the_same():
    found = specs('requirements = ["pandas"]')
    assert found["cpu"].id == found["gpu"].id


@pytest.mark.parametrize(
    "env",
    [
        'requirements = ["pandas<3"]', 'requirements = ["pandas"]\npython = "3.12"',
        'requirements = ["pandas"]\nsetup = ["true"]', "",
    ],
)  # fmt: skip
def test_other_content_is_another_environment(env):
    assert specs(env)["cpu"].id != specs('requirements = ["pandas"]')["cpu"].id


def test_another_python_of_the_host_is_another_environment_unless_a_version_is_set():
    other = HOSTS.replace("[hosts.cpu]", '[hosts.cpu]\npython = "/opt/bin/python"')
    for env, is_same in (("", False), ('python = "3.12"', True)):
        assert (specs(env)["cpu"].id == specs(env, other)["cpu"].id) == is_same


def test_setup_commands_find_pip_unless_hashes_are_required():
    assert specs('requirements = ["a"]\nsetup = ["true"]')["cpu"].lines == ("a", "pip")
    hashed = 'requirements = ["a --hash=sha256:ab"]\nsetup = ["true"]'
    assert specs(hashed)["cpu"].lines == ("a --hash=sha256:ab",)


def test_what_is_shown_has_no_options_and_no_passwords():
    shown = specs('requirements = ["x @ https://me:secret@host/x.whl"]')["cpu"].packages
    assert shown == ["x @ https://***@host/x.whl"]


def test_without_env_there_are_none():
    assert spec.for_hosts(make_inventory(HOSTS)) == {}
