"""The compose hosts as machines: they lose their network and their power, and get them back."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import leftovers
import pytest
from e2e.conftest import HOSTS, ssh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# Looks like a task, and is none of ours.
BYSTANDER = "python train_async.py --job_name=worker --task_index=1"
LIFE_S = "3600"
# A machine that has this file was left in the middle of a fault: tests/hosts/up makes it anew.
FAULTY = "/faulty"


def until(holds: Callable[[], Any], what: str, timeout_s: float = 120.0) -> Any:
    """Poll until `holds()` is true, and give what it gave."""
    deadline = time.monotonic() + timeout_s
    while not (found := holds()):
        assert time.monotonic() < deadline, f"in vain waited for: {what}"
        time.sleep(0.3)
    return found


def docker(*words: str) -> str:
    argv = ["docker", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout


@dataclass(frozen=True)
class Machine:
    """A host, from outside and as root: what happens here reaches no SSH connection."""

    name: str

    @property
    def container(self) -> str:
        return f"tfdeploy-{self.name}"

    @property
    def address(self) -> str:
        form = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        return docker("inspect", "--format", form, self.container).strip()

    @property
    def published(self) -> tuple[str, str]:
        """The address and port under which the engine offers its sshd."""
        address, _, port = docker("port", self.container, "22").strip().rpartition(":")
        return address, port

    def root(self, *argv: str) -> str:
        return docker("exec", "-u", "root", self.container, *argv)

    def shell(self, command: str) -> str:
        """Whatever it exits with."""
        return self.root("sh", "-c", f"{command}; true")

    def cut(self, *match: str) -> None:
        """From now on every packet is lost without a word; with `match` those that iptables finds
        so. Nobody is told: this is harder than a pulled cable."""
        self.root("touch", FAULTY)
        self.root("iptables", "-w", "-A", "INPUT", "-i", "eth0", *match, "-j", "DROP")
        swapped = [word.replace("--dport", "--sport") for word in match]
        self.root("iptables", "-w", "-A", "OUTPUT", "-o", "eth0", *swapped, "-j", "DROP")

    def slow(self, rate: str) -> None:
        """What it sends goes at `rate`, as tc writes it, and what can't wait for that is lost."""
        self.root("touch", FAULTY)
        shape = ("tbf", "rate", rate, "burst", "32kbit", "latency", "400ms")
        self.root("tc", "qdisc", "add", "dev", "eth0", "root", *shape)

    def heal(self) -> None:
        self.root("iptables", "-w", "-F", "INPUT")
        self.root("iptables", "-w", "-F", "OUTPUT")
        with suppress(subprocess.CalledProcessError):  # there is none
            self.root("tc", "qdisc", "del", "dev", "eth0", "root")
        self.root("rm", "-f", FAULTY)

    def lose_power(self) -> None:
        docker("kill", self.container)

    def shut_down(self) -> None:
        docker("stop", "-t", "1", self.container)

    def reboot(self) -> None:
        """Everything on it ends. The kernel is the machine's that runs the containers: it goes on,
        and so does its boot id."""
        docker("restart", "-t", "1", self.container)
        self.answers()

    def power_on(self) -> None:
        docker("start", self.container)
        self.answers()

    def answers(self) -> None:
        def logged_in() -> bool:
            with suppress(subprocess.SubprocessError):
                ssh(self.name, "true")
                return True
            return False

        until(logged_in, f"a login to {self.name}")

    def up_since(self) -> str:
        """ "" where it has no power."""
        form = "{{if .State.Running}}{{.State.StartedAt}}{{end}}"
        return docker("inspect", "--format", form, self.container).strip()

    def processes(self) -> dict[int, str]:
        """The command lines of the user's processes by pid, less those that only ask."""
        return leftovers.parsed(self.shell(leftovers.LISTING))

    def end(self, pids: Iterable[int]) -> None:
        for pid in pids:
            with suppress(subprocess.CalledProcessError):  # it has ended
                self.root("kill", "-KILL", str(pid))


MACHINES = {name: Machine(name) for name in HOSTS}


@contextmanager
def mended() -> Iterator[None]:
    """Afterwards, whatever happened, every machine is as it was. A bystander lives on each of them,
    as long as it keeps its power, and nothing else does when the test is over."""
    for machine in MACHINES.values():
        _need(machine)
        command = f"exec -a '{BYSTANDER}' sleep {LIFE_S}"
        docker("exec", "-d", "-u", "trainer", machine.container, "bash", "-c", command)
    since = {machine: machine.up_since() for machine in MACHINES.values()}
    bystander = f"{BYSTANDER} {LIFE_S}"
    try:
        yield
        expected = {m.name: [bystander] if m.up_since() == since[m] else [] for m in since}
        with suppress(AssertionError):
            until(lambda: running() == expected, "nothing but the bystanders", 40)
        found = running()
        assert found == expected, f"found {found}, expected {expected}"
    finally:
        repair()
        for machine in MACHINES.values():
            machine.end(machine.processes())


def running() -> dict[str, list[str]]:
    return {name: list(machine.processes().values()) for name, machine in MACHINES.items()}


def repair() -> None:
    """Every machine has its power and its network."""
    for machine in MACHINES.values():
        if not machine.up_since():
            machine.power_on()
        machine.heal()


def _need(machine: Machine) -> None:
    """Fails in CI without the hosts; elsewhere says what was skipped and how to have it."""
    try:
        ssh(machine.name, "true")
    except (subprocess.SubprocessError, OSError) as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"the compose hosts don't answer ({error}): tests/hosts/up starts them")
