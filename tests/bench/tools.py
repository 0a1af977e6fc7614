"""The tools: for each, the command line that its user would type for each step of the work.

All get the same ssh_config, use all hosts at the same time, and have settings that suit them
(Ansible: no facts, pipelining, its own warm connections).
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from subprocess import DEVNULL
from typing import TYPE_CHECKING

from bench.machines import HERE, KEY, KNOWN_HOSTS, SSH_CONFIG, USER
from bench.workload import CHECKPOINTS, PORT

if TYPE_CHECKING:
    from bench.workload import Job

# Set TFDEPLOY to measure another version than this checkout.
TFDEPLOY = os.environ.get("TFDEPLOY") or str(HERE.parent.parent / ".venv/bin/tfdeploy")
PEERS = HERE / ".peers"
PUSHES = ("push_cold", "push_same", "push_one")
COLLECTS = ("collect", "collect_more")


class Tool:
    """A tool. `code` returns the path of the pushed tree on a host."""

    name = ""
    venv = ""

    def prepare(self, job: Job) -> None:
        """Write the files that its user would have."""

    def argv(self, job: Job, step: str) -> list[str] | None:
        """Return the command for a step; None if the tool has no such command."""
        raise NotImplementedError

    def environment(self, job: Job) -> dict[str, str]:
        return {}

    def code(self, job: Job) -> str:
        return f"{job.host_folder}/code"

    def reports_ready(self, job: Job, output: str) -> bool:
        """Return whether the output of a successful `status` reports all tasks as ready."""
        return True

    def drop_warm(self, job: Job) -> None:
        """Delete what it stores between commands. The caller ends its processes."""

    def version(self) -> str:
        return (PEERS / self.venv / ".ready").read_text().strip()


class Tfdeploy(Tool):
    name = "tfdeploy"

    def prepare(self, job: Job) -> None:
        lines = [
            'project = "bench"',
            f"ssh_config = {json.dumps(str(SSH_CONFIG))}",
            f'[source]\npath = {json.dumps(str(job.source))}\n[training]\nrole = "flags"',
            f'command = "python train.py"\ncheckpoint_dir = "{CHECKPOINTS}"',
            f"[defaults]\nports = [{PORT}, {PORT + 1}]",
            f'directory = "{job.host_folder}"\nworkers = 1',
        ]
        lines += [f'[hosts.{host.name}]\naddress = "{host.address}"' for host in job.hosts]
        (job.folder / "hosts.toml").write_text("\n".join(lines) + "\n")
        # Once, as its user does: the source is outside of the folder of hosts.toml.
        home = os.environ | {"HOME": str(job.folder)}
        subprocess.run([TFDEPLOY, "trust"], cwd=job.folder, env=home, check=True, stdout=DEVNULL)

    def argv(self, job: Job, step: str) -> list[str] | None:
        return [TFDEPLOY, "--help" if step == "help" else step.partition("_")[0]]

    def code(self, job: Job) -> str:
        return f"$(ls -dtc {job.host_folder}/bench/releases/*/ | head -n 1)"

    def reports_ready(self, job: Job, output: str) -> bool:
        return output.count("READY") >= len(job.hosts)

    def drop_warm(self, job: Job) -> None:
        shutil.rmtree(job.folder / ".cache", ignore_errors=True)

    def version(self) -> str:
        if "TFDEPLOY" in os.environ:
            return TFDEPLOY
        git = ["git", "-C", str(HERE), "describe", "--always", "--dirty"]
        return f"tfdeploy {_first_line(git)}"


class Raw(Tool):
    """A shell loop with ssh and rsync."""

    name = "ssh + rsync"
    options = ""

    def argv(self, job: Job, step: str) -> list[str] | None:
        ssh = f"ssh -F {SSH_CONFIG} {self.options.format(folder=job.folder)}".strip()
        if step in PUSHES:
            push = f"rsync -a --delete -e '{ssh}' {job.source}/ {{}}:{job.host_folder}/code/"
            return _on_each(job, push)
        if step in COLLECTS:
            return _shell(f"rsync -a -e '{ssh}' {job.names[0]}:{CHECKPOINTS}/ {job.collected}/")
        if step in ("start", "status", "stop"):
            return _on_each(job, f"{ssh} {{}} '{getattr(job, step)}'")
        return None

    def version(self) -> str:
        return (
            _first_line(["ssh", "-V"])
            + ", "
            + _first_line(["rsync", "--version"]).split(" protocol")[0]
        )


class RawWarm(Raw):
    """The same, with connections that stay open after the command."""

    name = "ssh + rsync, ControlMaster"
    options = "-o ControlMaster=auto -o ControlPersist=60 -o ControlPath={folder}/%n"


class Ansible(Tool):
    name = "Ansible"
    venv = "ansible"

    def prepare(self, job: Job) -> None:
        (job.folder / "hosts").write_text("\n".join(job.names) + "\n")
        shared = {"use_ssh_args": True, "compress": False}
        push = {"src": f"{job.source}/", "dest": f"{job.host_folder}/code/", "delete": True}
        pull = {"src": f"{CHECKPOINTS}/", "dest": f"{job.collected}/", "mode": "pull"}
        bash = {"args": {"executable": "/bin/bash"}}
        plays = {
            "push": [{"ansible.posix.synchronize": {**push, **shared}}],
            "collect": [{"ansible.posix.synchronize": {**pull, **shared}}],
            "start": [
                {"ansible.builtin.shell": job.start, **bash},
                {"ansible.builtin.wait_for": {"port": PORT}},
            ],
            "stop": [{"ansible.builtin.shell": job.stop, **bash}],
        }
        for name, tasks in plays.items():
            play = [{"hosts": "all", "gather_facts": False, "tasks": tasks}]
            (job.folder / f"{name}.yml").write_text(json.dumps(play))  # JSON is also YAML

    def argv(self, job: Job, step: str) -> list[str] | None:
        play, adhoc = (f"{PEERS}/ansible/bin/{name}" for name in ("ansible-playbook", "ansible"))
        common = ["-i", f"{job.folder}/hosts", "-f", str(len(job.hosts))]
        if step == "help":
            return [play, "--help"]
        if step == "status":
            return [adhoc, "all", *common, "-m", "command", "-a", job.status]
        playbook = job.folder / f"{step.partition('_')[0]}.yml"
        return [play, *common, str(playbook)] if playbook.exists() else None

    def environment(self, job: Job) -> dict[str, str]:
        return {
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_SSH_COMMON_ARGS": f"-F {SSH_CONFIG}",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": f"{job.folder}/c",
            "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3",
        }


class Pyinfra(Tool):
    name = "pyinfra"
    venv = "pyinfra"

    def prepare(self, job: Job) -> None:
        settings = {
            "ssh_hostname": "127.0.0.1",
            "ssh_user": USER,
            "ssh_key": str(KEY),
            "ssh_known_hosts_file": str(KNOWN_HOSTS),
            "ssh_strict_host_key_checking": "yes",
            "ssh_allow_agent": False,
            "ssh_look_for_keys": False,
        }
        hosts = [(host.name, {**settings, "ssh_port": host.port}) for host in job.hosts]
        (job.folder / "inventory.py").write_text(f"hosts = {hosts!r}\n")
        common = {
            "source": str(job.source),
            "host_folder": job.host_folder,
            "collected": str(job.collected),
        }
        commands = {step: getattr(job, step) for step in ("start", "status", "stop")}
        fields = {**common, **commands, "checkpoints": CHECKPOINTS}
        (job.folder / "job.json").write_text(json.dumps(fields))

    def argv(self, job: Job, step: str) -> list[str] | None:
        pyinfra = f"{PEERS}/pyinfra/bin/pyinfra"
        if step == "help":
            return [pyinfra, "--help"]
        if step.startswith("plan"):
            return None
        options = ["-y", "--parallel", str(len(job.hosts))]
        inventory = str(job.folder / "inventory.py")
        if step == "status":
            return [pyinfra, *options, inventory, "exec", "--", *job.status.split()]
        deploy = HERE / "drivers" / "pyinfra_deploy.py"
        return [pyinfra, *options, inventory, str(deploy), "--data", f"step={step}"]

    def environment(self, job: Job) -> dict[str, str]:
        return {"BENCH_JOB": f"{job.folder}/job.json"}


class Fabric(Tool):
    """As its documentation shows it: ThreadingGroup.run, rsync for the tree, Connection.get."""

    name = "Fabric"
    venv = "fabric"

    def prepare(self, job: Job) -> None:
        fields = {
            "hosts": [f"{USER}@127.0.0.1:{host.port}" for host in job.hosts],
            "names": job.names,
            "key": str(KEY),
            "ssh": f"ssh -F {SSH_CONFIG}",
            "source": str(job.source),
            "host_folder": job.host_folder,
            "collected": str(job.collected),
            "checkpoints": CHECKPOINTS,
            **{step: getattr(job, step) for step in ("start", "status", "stop")},
        }
        (job.folder / "job.json").write_text(json.dumps(fields))

    def argv(self, job: Job, step: str) -> list[str] | None:
        binaries = f"{PEERS}/fabric/bin"
        if step == "help":
            return [f"{binaries}/fab", "--help"]
        if step.startswith("plan"):
            return None
        driver = HERE / "drivers" / "fabric_naive.py"
        return [f"{binaries}/python", str(driver), f"{job.folder}/job.json", step]


ALL: tuple[Tool, ...] = (Tfdeploy(), Raw(), RawWarm(), Ansible(), Pyinfra(), Fabric())


def _on_each(job: Job, command: str) -> list[str]:
    names = shlex.join(job.names)
    return _shell(f"printf '%s\\n' {names} | xargs -P {len(job.hosts)} -I{{}} {command}")


def _shell(line: str) -> list[str]:
    return ["bash", "-c", line]


def _first_line(argv: list[str]) -> str:
    """Return the first line that a command prints."""
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return " ".join((done.stdout + done.stderr).splitlines()[0].split())
