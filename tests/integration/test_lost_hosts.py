"""Hosts that are off or refuse connections do not keep the others from a release."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.ports import ADDRESS, free_port
from support.projects import Project, ssh_hosts
from support.silent_host import silent_port
from support.sshd import write_ssh_config

from tfdeploy.transport.daemon import locate

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path, keys, sshds) -> Iterator[Project]:
    """Return a project on two hosts that live, one that drops packets, and one that refuses."""
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text("".join(sshd.known_hosts_line for sshd in sshds.values()))
    with silent_port() as port:
        lost = {"off": port, "refusing": free_port()}
        entries = {name: sshds[name].entry() for name in ("one", "two")}
        entries |= {name: {"HostName": ADDRESS, "Port": str(port)} for name, port in lost.items()}
        write_ssh_config(tmp_path / "ssh_config", keys, known_hosts, entries)
        hosts = ssh_hosts(tmp_path / "hosts")
        for name in lost:
            hosts[name] = {"address": ADDRESS, "directory": str(tmp_path / "hosts" / name)}
        top = {"ssh_config": str(tmp_path / "ssh_config"), "source": {"exclude": ["/*.toml"]}}
        yield Project(tmp_path / "project", hosts, top)
        locate.stop_daemons()


def test_lost_hosts_are_named_and_the_others_get_the_release(project):
    done = project.tf("push")
    assert done.returncode == 1
    assert "refusing: no SSH connection" in done.stderr
    assert "off: no SSH answer within 3.5 s" in done.stderr
    assert len(project.releases("one")) == len(project.releases("two")) == 1
