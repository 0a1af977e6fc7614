"""The platforms for which wheels are downloaded, and what is refused before anything runs."""

from __future__ import annotations

import importlib.util

import pytest

from tfdeploy.environments import installation, wheelhouse
from tfdeploy.environments.spec import EnvironmentSpec
from tfdeploy.environments.wheelhouse import NoWheels, WheelTarget


def test_wheels_for_an_older_libc_are_accepted_the_newest_first():
    names = wheelhouse._pip_platforms(WheelTarget("3.11", "x86_64", "glibc 2.18"))
    assert names[:4] == [
        "manylinux_2_18_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64",
        "manylinux_2_16_x86_64",
    ]  # fmt: skip
    assert names[-1] == "linux_x86_64"


@pytest.mark.parametrize(
    ("machine", "libc", "platform"),
    [
        ("x86_64", "glibc 2.36", "x86_64-manylinux_2_36"),
        ("x86_64", "glibc 2.30", "x86_64-manylinux_2_28"),
        ("aarch64", "glibc 2.99", "aarch64-manylinux_2_40"),
        ("x86_64", "", "x86_64-unknown-linux-musl"),
    ],
)
def test_versions_are_chosen_for_the_platform_of_the_host(machine, libc, platform):
    assert wheelhouse._uv_platform(WheelTarget("3.11", machine, libc)) == platform


@pytest.mark.parametrize(
    ("python", "machine"),
    [("3.11", "../x"), ("3.11", "ppc64le"), ("--help", "x86_64"), ("", "x86_64")],
)
def test_an_unknown_platform_is_refused(tmp_path, python, machine):
    with pytest.raises(NoWheels, match="knows no wheels"):
        wheelhouse.download(spec("numpy"), WheelTarget(python, machine, "glibc 2.36"), tmp_path)


@pytest.mark.parametrize(
    "line",
    ["x @ file:///home/me/x.whl", "/home/me/x.whl", "--find-links /home/me", "-f file:///x",
     "--index-url https://${AWS_SECRET}@host/", "--find-links=~/x",
     "--index-url ../x", "-i ./x", "-f FILE:///x", "--extra-index-url=file:x",
     "--find-links=../../x"],
)  # fmt: skip
def test_files_and_variables_of_the_host_are_not_looked_for_on_the_controller(tmp_path, line):
    with pytest.raises(NoWheels, match="means a file or a variable of the host"):
        wheelhouse.download(
            spec("numpy", line), WheelTarget("3.11", "x86_64", "glibc 2.36"), tmp_path
        )


@pytest.mark.parametrize(
    "line",
    ["x @ https://host/x-1.tar.gz", "x @ git+https://host/x", "git+https://host/x",
     "https://host/x.zip", "x @ https://host/x.zip#.whl", "x @ https://host/x.zip?.whl",
     "x @ https://host/x.tar.gz ; y == 'a.whl'", "https://host/x.whl.zip", "--no-binary :all:",
     "--no-binary=x", "--config-settings a=b", "--global-option=x", "--no-build-isolation"],
)  # fmt: skip
def test_source_code_is_never_built_on_the_controller(tmp_path, line):
    with pytest.raises(NoWheels, match="it uses only wheels"):
        wheelhouse.download(
            spec("numpy", line), WheelTarget("3.11", "x86_64", "glibc 2.36"), tmp_path
        )


@pytest.mark.parametrize(
    "line",
    ["x @ https://host/x-1-py3-none-any.whl", "x[a]@https://host/x.whl#sha256=ab ; a == 'x'",
     "--extra-index-url https://host/simple", "--pre", "-i https://host", "numpy>=2 ; a == 'x'",
     "x @ https://host/x.whl --hash=sha256:ab"],
)  # fmt: skip
def test_wheels_and_indexes_are_accepted(line):
    wheelhouse._refuse_foreign([line])


@pytest.mark.parametrize(
    "name", ["AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "LD_PRELOAD", "PYTHONPATH"]
)
def test_installers_on_the_controller_do_not_see_other_variables(name):
    assert not wheelhouse.VARIABLES.fullmatch(name)


@pytest.mark.parametrize(
    "name", ["HOME", "PIP_INDEX_URL", "UV_INDEX", "https_proxy", "HTTPS_PROXY"]
)
def test_installers_on_the_controller_see_the_settings_of_its_user(name):
    assert wheelhouse.VARIABLES.fullmatch(name)


@pytest.fixture
def without_extra(monkeypatch):
    monkeypatch.setattr(wheelhouse, "packaged_uv", lambda: None)
    monkeypatch.setattr(installation, "command_to_add", lambda extra: f"add {extra}")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def test_without_uv_the_command_that_installs_it_is_the_reason(
    tmp_path, monkeypatch, without_extra
):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoWheels, match=r"^it has no uv, .* add env$"):
        wheelhouse.versions(["numpy"], WheelTarget("3.11", "x86_64", "glibc 2.36"))
    with pytest.raises(NoWheels, match=r"^it has no uv, .* add env$"):
        wheelhouse.uv_release("x86_64", "glibc 2.36", tmp_path)


def test_without_pip_the_command_that_installs_it_is_the_reason(tmp_path, without_extra):
    with pytest.raises(NoWheels, match=r"^it has no pip, .* add env$"):
        wheelhouse._download(WheelTarget("3.11", "x86_64", "glibc 2.36"), tmp_path, tmp_path, print)


def test_uv_of_path_is_used_here(tmp_path, monkeypatch, without_extra):
    uv = tmp_path / "uv"
    uv.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert wheelhouse._uv() == [str(uv)]


def spec(*lines):
    return EnvironmentSpec("e", lines, (), {}, "", ())
