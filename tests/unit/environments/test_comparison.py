"""Hosts whose environments differ are named, with the packages and the usual versions."""

from __future__ import annotations

from tfdeploy.environments.packages import differences


def messages(**packages):
    return [(error.host, error.message) for error in differences(packages)]


def test_equal_environments_do_not_differ():
    assert messages(a={"numpy": "2"}, b={"numpy": "2"}) == []


def test_a_package_that_only_some_hosts_have_is_no_difference():
    assert messages(a={"numpy": "2", "nvidia-cudnn": "9"}, b={"numpy": "2"}) == []


def test_the_host_with_another_version_is_named():
    [error] = differences({"a": {"numpy": "2"}, "b": {"numpy": "2"}, "c": {"numpy": "1"}})
    assert (error.host, error.message) == (
        "c", "its environment differs from those of other hosts: numpy 1 instead of 2",
    )  # fmt: skip
    assert '"numpy==2"' in error.hint


def test_only_the_first_packages_are_named():
    usual, other = dict.fromkeys("abcde", "1"), dict.fromkeys("abcde", "2")
    [(_, message)] = messages(x=usual, y=usual, z=other)
    assert message.endswith(
        "a 2 instead of 1, b 2 instead of 1, c 2 instead of 1 and 2 other packages"
    )


def test_tools_that_come_with_an_environment_may_differ():
    assert messages(a={"pip": "1", "setuptools": "3"}, b={"pip": "2", "setuptools": "4"}) == []
