"""Which hosts get uv from the controller, and the errors of those that get none."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from tfdeploy.commands import environments
from tfdeploy.environments import wheelhouse
from tfdeploy.errors import TfdeployError
from tfdeploy.shared.protocol.environments import EnvironmentState


def state(uv, machine="x86_64"):
    return EnvironmentState(False, "", {}, uv, machine, "glibc 2.36", "id")


@pytest.fixture
def fleet():
    transfers = SimpleNamespace(begin=lambda name, note: nullcontext())
    return SimpleNamespace(transfers=transfers, inventory=SimpleNamespace(project="p"))


@pytest.fixture
def sent(monkeypatch):
    """The hosts to which a release was sent."""
    hosts = []

    def uv_release(machine, libc, folder):
        if machine != "x86_64":
            raise wheelhouse.NoWheels(f"it knows no wheels for {machine}")
        return SimpleNamespace(id="env-uv-1")

    monkeypatch.setattr(wheelhouse, "uv_release", uv_release)
    monkeypatch.setattr(environments, "send", lambda *args, what: hosts.extend(args[3]))
    return hosts


def test_only_hosts_without_uv_get_it(fleet, sent):
    states = {"a": state(""), "b": state("0.9.1"), "c": state("")}
    assert environments._send_uv(fleet, states) == {"a": "env-uv-1", "c": "env-uv-1"}
    assert sent == ["a", "c"]


def test_hosts_for_which_the_controller_has_no_uv_are_named(fleet, sent):
    with pytest.raises(TfdeployError) as refused:
        environments._send_uv(fleet, {"a": state("", "ppc64le"), "b": state("0.9.1")})
    assert "a: it has no uv, and the controller can't send it: it knows no wheels for ppc64le" in (
        str(refused.value)
    )
