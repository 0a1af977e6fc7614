"""Hosts that are off or refuse connections cost the others little, and less the next time."""

from __future__ import annotations

import re
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


def seconds_until_given_up(project: Project) -> float:
    """Push; return after how long the silent host was given up."""
    done = project.tf("push")
    assert done.returncode == 1
    assert "refusing: no SSH connection" in done.stderr
    (seconds,) = re.findall(r"off: no SSH answer within (\S+) s", done.stderr)
    return float(seconds)


def test_a_silent_host_is_given_up_earlier_while_it_is_remembered(project):
    first = seconds_until_given_up(project)
    assert len(project.releases("one")) == len(project.releases("two")) == 1
    assert seconds_until_given_up(project) < first / 2
