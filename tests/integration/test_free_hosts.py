"""`workers` in [training]: the workers run on the fewest hosts that have free GPUs."""

from __future__ import annotations

import json
import os

import pytest
from support.nvidia_smi import StubNvidiaSmi
from support.ports import ADDRESS, free_ports
from support.projects import Project
from support.sshd import Sshd, write_ssh_config

pytestmark = pytest.mark.slow


@pytest.fixture
def lab(base, keys, by_ssh, tmp_path):
    """A function that makes a project on three hosts, with these numbers of GPUs each."""
    running, smi = {}, {}

    def provide(*counts):
        for name, count in zip("abc", counts, strict=True):
            smi[name] = StubNvidiaSmi(tmp_path / name, count)
            path = f"{smi[name].folder}:{os.environ['PATH']}"
            running[name] = Sshd(base, keys, f"SetEnv HOME={base} PATH={path}")
        known_hosts = tmp_path / "known_hosts"
        known_hosts.write_text("".join(sshd.known_hosts_line for sshd in running.values()))
        entries = {name: sshd.entry() for name, sshd in running.items()}
        write_ssh_config(tmp_path / "ssh_config", keys, known_hosts, entries)
        return smi

    def project(folder, **training):
        python = by_ssh.hosts()["one"]["python"]
        common = {"address": ADDRESS, "python": python, "ports": "auto"}
        hosts = {
            name: {**common, "gpus": len(stub.gpus), "directory": str(tmp_path / f"root-{name}")}
            for name, stub in smi.items()
        }
        top = {"ssh_config": str(tmp_path / "ssh_config")}
        made = Project(tmp_path / folder, hosts, top, training, flags=["--hold"])
        by_ssh.projects.append(made)
        return made

    provide.project = project
    yield provide
    by_ssh.end()
    for sshd in running.values():
        sshd.stop()


def test_workers_run_on_the_fewest_hosts_with_free_gpus(lab):
    lab(4, 4, 2)["a"].use(0, os.getpid())
    project = lab.project("one", workers=5)
    why = (
        "training.workers: 5 workers on the fewest hosts: 4 on b (4 of 4 GPUs free), "
        "1 on c (2 of 2 GPUs free)"
    )
    planned = json.loads(project.ok("plan", "--json"))
    assert [note["message"] for note in planned["notes"]] == [why]
    assert [task["host"] for task in planned["tasks"]] == ["b"] * 4 + ["c"]
    started = project.tf("start", "--with=workers=3")
    assert "3 on a (3 of 4 GPUs free)" in " ".join(started.stderr.split()), started.stderr
    status = project.status()
    assert {(task["host"], *task["gpus"]) for task in status.values()} == {
        ("a", 1), ("a", 2), ("a", 3)
    }  # fmt: skip
    project.hosts["d"] = {**project.hosts["a"], "hostname": ADDRESS, "port": free_ports(1)[0]}
    project.write()
    note = json.loads(project.ok("plan", "--json", "--with=workers=1"))["notes"][0]["message"]
    assert note.endswith("1 on c (2 of 2 GPUs free); no answer from d")
    elsewhere = project.tf("push", "--on=a")  # of 5 workers none
    assert 'there is no host "a" among those with tasks' in elsewhere.stderr
    few = project.tf("plan", "--with=workers=7")
    assert few.returncode == 1  # d did not answer
    assert "found room for 6, with these free GPUs: 4 on b, 2 on c" in few.stderr


def test_two_starts_at_the_same_moment_get_different_gpus(lab):
    lab(2, 1, 2)
    rivals = [lab.project(name, workers=2) for name in ("one", "two")]
    with rivals[0].start_command("start") as one, rivals[1].start_command("start") as two:
        assert [each.process.wait() for each in (one, two)] == [0, 0], [one.output, two.output]
    hosts = [{task["host"] for task in run.status().values()} for run in rivals]
    assert sorted(map(sorted, hosts)) == [["a"], ["c"]]
