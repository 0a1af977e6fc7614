"""Hosts with Python and sshd only, which reach no index of packages, train with TensorFlow."""

from __future__ import annotations

import pytest

from .conftest import ssh

pytestmark = pytest.mark.slow
TWO_HOSTS = ("ps1", "worker1")  # are left out


def test_bare_hosts_without_a_network_train_with_the_tensorflow_that_push_brought(project):
    file = project.folder / "hosts.toml"
    tables = file.read_text().split("\n[hosts.")
    kept = "\n[hosts.".join(t for t in tables if not t.startswith(TWO_HOSTS))
    file.write_text(kept.replace("gpus = 2\n", ""))
    project.edit(
        ('project = "digits"', 'project = "bare"'),
        ("[source]", '[env]\nrequirements = ["tensorflow>=2.21,<2.22"]\n\n[source]'),
        ('python = "/opt/python/bin/python"', 'python = "python3"'),
    )
    try:
        done = project.json("run")
        assert done["result"] == "succeeded"
        facts = project.json("check")["hosts"]
        assert {host["tensorflow"][:5] for host in facts.values()} == {"2.21."}
        assert {tuple(host["libraries"]) for host in facts.values()} == {("Keras", "numpy")}
    finally:
        for host in ("ps0", "chief"):
            ssh(host, "chmod -R u+w ~/.tfdeploy/bare; rm -rf ~/.tfdeploy/bare ~/.tfdeploy/.cache")
