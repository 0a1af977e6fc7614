"""Compare trials with a loop of ssh: python -m bench.trials_loop [ROUNDS] [TRIALS] [SECONDS].

Two sshd on loopback are the hosts, with two slots each. A trial sleeps for some seconds: so what is
measured is what starts it. Each round runs the same trials with tfdeploy, with `xargs -P` over the
same slots, and one after the other. Prints the seconds of each, then what 1,000 trials that end at
once cost: CPU time of the supervisors and of what they started, and files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from support.projects import Project
from support.sshd import Keys, Sshd, write_ssh_config

HOSTS, SLOTS, MANY = ("one", "two"), 2, 1000
TICKS = os.sysconf("SC_CLK_TCK")
SCRIPT = 'import sys, time\ntime.sleep(float(sys.argv[1].partition("=")[2].partition("-")[0]))\n'


def main(rounds: int, trials: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch)
        sshds = hosts_on(base)
        tables = {name: {"workers": 1, "address": "127.0.0.1", "ports": "auto",
                         "directory": str(base / name)} for name in HOSTS}  # fmt: skip
        top = {"ssh_config": str(base / "ssh_config"), "trials": {"slots_per_host": SLOTS}}
        project = Project(base / "project", tables, top, {"command": ["python3", "train.py"]})
        (project.folder / "train.py").write_text(SCRIPT)
        run_trials(project, 4, 0.0)  # the agent and the release are on the hosts
        for _ in range(rounds):
            own_s, slots_s = run_trials(project, trials, seconds)
            loop_s, serial_s = (by_ssh(base, trials, seconds, lanes) for lanes in (4, 1))
            print(f"{own_s:.1f} s, its slots {slots_s:.1f} s; xargs {loop_s:.1f} s; one after the "
                  f"other {serial_s:.1f} s", flush=True)  # fmt: skip
        many(project)
        for sshd in sshds:
            sshd.stop()


def hosts_on(base: Path) -> list[Sshd]:
    keys = Keys(base / "keys")
    sshds = {name: Sshd(base, keys) for name in HOSTS}
    lines = "".join(sshd.known_hosts_line for sshd in sshds.values())
    (base / "known_hosts").write_text(lines)
    entries = {name: sshd.entry() for name, sshd in sshds.items()}
    write_ssh_config(base / "ssh_config", keys, base / "known_hosts", entries)
    return [*sshds.values()]


def run_trials(project: Project, trials: int, seconds: float) -> tuple[float, float]:
    """Return the seconds of the command, and those from the first start of a trial to the last
    end."""
    started = time.monotonic()
    values = ",".join(f"{seconds}-{number}" for number in range(trials))
    shown = json.loads(project.ok("trials", "--param", f"s={values}", "--json", "-q"))["trials"]
    took = time.monotonic() - started
    assert {trial["state"] for trial in shown} == {"SUCCEEDED"}
    begin = min(trial["at"] - trial["seconds"] for trial in shown)
    return took, max(trial["at"] for trial in shown) - begin


def by_ssh(base: Path, trials: int, seconds: float, lanes: int) -> float:
    """Return the seconds of a loop over the hosts."""
    lines = "".join(f"{HOSTS[n % len(HOSTS)]} s={seconds}-{n}\n" for n in range(trials))
    train = base / "project" / "train.py"
    command = ["xargs", "-P", str(lanes), "-L", "1", "sh", "-c",
               f'ssh -F {base}/ssh_config "$0" python3 {train} "$1"']  # fmt: skip
    started = time.monotonic()
    subprocess.run(command, input=lines, text=True, check=True)
    return time.monotonic() - started


def many(project: Project) -> None:
    """Print what trials cost that end at once."""
    used: dict[int, tuple[float, float]] = {}
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(0.2):
            for pid, words in project.processes().items():
                if " supervise " in words:
                    used[pid] = cpu_seconds(pid) or used.get(pid, (0.0, 0.0))

    thread = threading.Thread(target=sample)
    thread.start()
    took, slots_s = run_trials(project, MANY, 0.0)
    ended.set()
    thread.join()
    own, others = (1000 * sum(each) / MANY for each in zip(*used.values(), strict=True))
    run = project.runs[-1]
    on_hosts = sum(len([*project.on(host).glob(f"runs/{run}/**/*")]) for host in HOSTS)
    at_home = len([*project.run_folder.rglob("*")])
    print(f"{MANY} trials: {took:.1f} s, its slots {slots_s:.1f} s; CPU of a trial: supervisors "
          f"{own:.1f} ms, what they started {others:.1f} ms; files of a trial: hosts "
          f"{on_hosts / MANY:.1f}, controller {at_home / MANY:.1f}")  # fmt: skip


def cpu_seconds(pid: int) -> tuple[float, float] | None:
    """Return the CPU seconds of a process, and of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    own, others = (sum(map(int, fields[n : n + 2])) / TICKS for n in (11, 13))
    return own, others


if __name__ == "__main__":
    words = sys.argv[1:]
    main(int(words[0]) if words else 3, int(words[1]) if words[1:] else 40,
         float(words[2]) if words[2:] else 1.0)  # fmt: skip
