"""The compose hosts as machines that lose their network and power, and get them back."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support import leftovers
from support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ROOT = Path(__file__).resolve().parents[2]
# Each of pytest-xdist's workers has its own set of hosts.
SET = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
SSH_CONFIG = ROOT / "tests" / "hosts" / ".keys" / f"ssh_config.{SET}"
HOSTS = ("ps0", "ps1", "chief", "worker1")
# The command line of a process that looks like a task but is none of the tests' tasks.
BYSTANDER = "python train_async.py --job_name=worker --task_index=1"
LIFE_S = "3600"
# A machine with this file was left in the middle of a fault: tests/hosts/up creates it again.
FAULTY = "/faulty"


def ssh(host: str, command: str) -> str:
    argv = ["ssh", "-F", str(SSH_CONFIG), host, command]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def docker(*words: str) -> str:
    argv = ["docker", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


@dataclass(frozen=True)
class Machine:
    """A compose host, controlled from outside and as root, so that no SSH connection notices."""

    name: str

    @property
    def container(self) -> str:
        return f"tfdeploy-{SET}-{self.name}"

    @property
    def address(self) -> str:
        form = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        return docker("inspect", "--format", form, self.container).strip()

    @property
    def published(self) -> tuple[str, str]:
        """The address and port at which the engine publishes its sshd."""
        address, _, port = docker("port", self.container, "22").strip().rpartition(":")
        return address, port

    def root(self, *argv: str) -> str:
        return docker("exec", "-u", "root", self.container, *argv)

    def shell(self, command: str) -> str:
        """Run a shell command, whatever its exit code."""
        return self.root("sh", "-c", f"{command}; true")

    def read(self, path: str) -> str:
        """Return a file's text; "" if the file or the machine's power is missing."""
        try:
            return self._disk(path).read_text(errors="replace")
        except PermissionError:  # the tests do not run as root
            return self.shell(f"cat {path} 2>/dev/null")
        except OSError:
            return ""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder; [] if the folder or the machine's power is missing."""
        try:
            return [entry.name for entry in self._disk(folder).iterdir()]
        except PermissionError:
            return self.shell(f"ls {folder} 2>/dev/null").splitlines()
        except OSError:
            return []

    def _disk(self, path: str) -> Path:
        """Return the path of a file of the container on the machine that runs the tests.

        Reading it 3 times a second starts no process in the container.
        """
        return Path(f"/proc/{self._first_process}/root") / path.lstrip("/")

    @property
    def _first_process(self) -> str:
        """Its pid in the pid namespace of the tests; "0" without power."""
        if not Path(f"/proc/{_PIDS.get(self.container, '0')}/root/etc/hostname").exists():
            form = "{{.State.Pid}}"
            _PIDS[self.container] = docker("inspect", "--format", form, self.container).strip()
        return _PIDS[self.container]

    def cut_network(self, *match: str) -> None:
        """Drop every packet silently; with `match`, only those that iptables matches so.

        No side gets an error: this is harder than a pulled cable.
        """
        to, back = " ".join(match), " ".join(match).replace("--dport", "--sport")
        drop_in = f"iptables -w -A INPUT -i eth0 {to} -j DROP"
        drop_out = f"iptables -w -A OUTPUT -o eth0 {back} -j DROP"
        self.root("sh", "-c", f"touch {FAULTY} && {drop_in} && {drop_out}")

    def limit_bandwidth(self, rate: str) -> None:
        """Send at `rate`, in tc's notation; packets that cannot wait for that are dropped."""
        self.root("touch", FAULTY)
        shape = ("tbf", "rate", rate, "burst", "32kbit", "latency", "400ms")
        self.root("tc", "qdisc", "add", "dev", "eth0", "root", *shape)

    def restore_network(self) -> None:
        if FAULTY.lstrip("/") not in self.names("/"):
            return
        flush = "iptables -w -F INPUT && iptables -w -F OUTPUT"
        unlimit = "{ tc qdisc del dev eth0 root 2>&1 || true; }"  # there may be no limit
        self.root("sh", "-c", f"{flush} && {unlimit} && rm -f {FAULTY}")

    @property
    def process_count(self) -> int:
        """The number of its processes and threads, as its limit counts them."""
        return int(docker("stats", "--no-stream", "--format", "{{.PIDs}}", self.container))

    @contextmanager
    def limited(self, *limits: str, lifted: Sequence[str]) -> Iterator[None]:
        """Run the block with limits of the kernel, in words of `docker update`."""
        self.root("touch", FAULTY)
        docker("update", *limits, self.container)
        try:
            yield
        finally:
            docker("update", *lifted, self.container)
            self.root("rm", "-f", FAULTY)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let nothing on it run in the block, as if its hypervisor had suspended it."""
        docker("pause", self.container)
        try:
            yield
        finally:
            docker("unpause", self.container)

    def lose_power(self) -> None:
        docker("kill", self.container)

    def shut_down(self) -> None:
        docker("stop", "-t", "1", self.container)

    def reboot(self) -> None:
        """End everything on it. The boot id stays, because the containers share one kernel."""
        docker("restart", "-t", "1", self.container)
        self.wait_for_login()

    def power_on(self) -> None:
        docker("start", self.container)
        self.wait_for_login()

    def wait_for_login(self) -> None:
        def can_log_in() -> bool:
            with suppress(subprocess.SubprocessError):
                ssh(self.name, "true")
                return True
            return False

        until(can_log_in, f"a login to {self.name}")

    def processes(self) -> dict[int, str]:
        """Return the command lines of the user's processes by pid, without those of a login.

        The engine would need five times as long as nsenter, which only root can use.
        """
        if os.geteuid() != 0:
            return leftovers.parsed(self.shell(leftovers.LISTING))
        enter = ["nsenter", "--target", self._first_process, "--mount", "--pid"]
        argv = [*enter, "sh", "-c", f"{leftovers.LISTING}; true"]  # ps fails if it finds none
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        return leftovers.parsed(done.stdout)

    def kill(self, pids: Iterable[int]) -> None:
        if every := " ".join(map(str, pids)):
            self.shell(f"kill -KILL {every}")  # some may have ended


# The pid of each container's first process, in the pid namespace of the tests.
_PIDS: dict[str, str] = {}
MACHINES = {name: Machine(name) for name in HOSTS}


def starts() -> dict[str, str]:
    """Return the time of each machine's start by its name; "" without power."""
    form = "{{if .State.Running}}{{.State.StartedAt}}{{end}}"
    containers = (machine.container for machine in MACHINES.values())
    lines = docker("inspect", "--format", form, *containers).split("\n")
    return dict(zip(MACHINES, lines, strict=False))  # the output ends with a newline


@contextmanager
def repaired_machines() -> Iterator[None]:
    """Run the block, then repair every machine.

    A bystander runs on each machine until the machine loses its power. After the block no other
    process of the user is left.
    """
    for machine in MACHINES.values():
        _require(machine)
        command = f"exec -a '{BYSTANDER}' sleep {LIFE_S}"
        docker("exec", "-d", "-u", "trainer", machine.container, "bash", "-c", command)
    since = starts()
    bystander = f"{BYSTANDER} {LIFE_S}"
    try:
        yield
        now = starts()
        assert_nothing_runs_but(
            {name: [bystander] if now[name] == since[name] else [] for name in MACHINES}
        )
    finally:
        repair()
        for machine in MACHINES.values():
            machine.kill(machine.processes())


def running_commands() -> dict[str, list[str]]:
    """Return the command lines of the user's processes by machine."""
    return {name: list(machine.processes().values()) for name, machine in MACHINES.items()}


def assert_nothing_runs_but(expected: dict[str, list[str]]) -> None:
    """Wait until the user's processes are these: a supervisor may try to report its end for a
    minute, and the agent of a closed connection needs a moment to exit."""
    with suppress(AssertionError):
        until(lambda: running_commands() == expected, "the end of all others", running_commands)
    found = running_commands()
    assert found == expected, f"found {found}, expected {expected}"


def repair() -> None:
    """Give every machine its power and its network back."""
    for name, since in starts().items():
        if not since:
            MACHINES[name].power_on()
        MACHINES[name].restore_network()


def _require(machine: Machine) -> None:
    """Skip the test if the machine does not answer, and say what to start."""
    try:
        ssh(machine.name, "true")
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(
            f"the compose hosts do not answer ({error}): tests/hosts/up {SET + 1} starts them"
        )
