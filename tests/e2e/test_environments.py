"""A host with Python and sshd only, which reaches no index of packages, trains with TensorFlow."""

from __future__ import annotations

import pytest
from support.machines import MACHINES

from tfdeploy.config import inventory

from .conftest import SSH_CONFIG, ssh

pytestmark = pytest.mark.slow

# One is enough: TensorFlow fills 1.5 GB. tests/hosts/nvidia-smi gives it no GPU: so without CUDA.
HOSTS = ("ps0",)
TENSORFLOW = "/opt/python"


@pytest.fixture
def bare(project):
    """Hide the TensorFlow of a host; delete what the project has stored there at the end."""
    try:
        for host in HOSTS:
            MACHINES[host].root("chmod", "700", TENSORFLOW)
        yield project
    finally:
        for host in HOSTS:
            MACHINES[host].root("chmod", "755", TENSORFLOW)
            name = project.folder.name
            ssh(host, f"cd ~/.tfdeploy; chmod -R u+w {name} .cache; rm -rf {name} .cache")


def test_init_and_run_are_enough_on_a_bare_host_without_a_network(bare):
    (bare.folder / "hosts.toml").unlink()
    out = bare.ok("init", *HOSTS, "--ssh-config", str(SSH_CONFIG))
    assert "no Python with TensorFlow on ps0: tfdeploy installs the packages of [env]" in out
    written = inventory.load(bare.folder / "hosts.toml")
    packages = [requirement.partition("==")[0] for requirement in written.env.requirements]
    assert packages == ["tensorflow", "numpy"]
    assert {host.python for host in written.hosts} == {"python3"}
    assert bare.json("run")["result"] == "succeeded"
    assert list(bare.folder.glob("runs/*/checkpoints/model.ckpt-*"))
    facts = bare.json("check")["hosts"]
    assert {host["tensorflow"][:2] for host in facts.values()} == {"2."}
    assert {tuple(sorted(host["libraries"])) for host in facts.values()} == {("Keras", "numpy")}
