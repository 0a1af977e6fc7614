"""Hosts on this machine, each with an sshd of its own, and projects that train on them."""

from __future__ import annotations

import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from support.ports import ADDRESS, free_ports
from support.sshd import Keys, Sshd, write_ssh_config
from support.trusting import trust

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
HOSTS = ("cpu-01", "cpu-02", "cpu-03")
PYTHON = "venv/bin/python"
PORTS = 3  # of each host
TOML = """\
project = "digits"
ssh_config = "{ssh_config}"

[training]
command = ["python", "train.py", "--checkpoint_dir={{checkpoint_dir}}", "--steps={steps}"]
role = "flags"
checkpoint_dir = "checkpoints"
env = {{ TF_CPP_MIN_LOG_LEVEL = "2", TF_ENABLE_ONEDNN_OPTS = "0" }}

[source]
exclude = ["hosts.toml", "demo.sh", "README.md"]
"""
HOST = """
[hosts.{name}]
{job} = 1
address = "{address}"
ports = {ports}
python = "{python}"
directory = "{directory}"
"""


TRIALS_HOST = """
[hosts.{name}]
workers = 1
address = "{address}"
ports = "auto"
python = "{python}"
directory = "{directory}"
"""


@contextmanager
def training_site(scratch: Path, steps: int) -> Iterator[Path]:
    """Yield the folder of a project whose first host has a ps, and the others a worker each."""
    with _sshds(scratch) as (_, config):
        yield _project(scratch, config, steps)


@contextmanager
def trials_site(scratch: Path) -> Iterator[tuple[Path, dict[str, Sshd]]]:
    """Yield the folder of the example of trials, with two slots on each of two hosts, and the sshd
    of all hosts."""
    with _sshds(scratch) as (sshds, config):
        (scratch / "venv").symlink_to(sys.prefix)
        ignored = shutil.ignore_patterns("runs", "__pycache__")
        copy = Path(shutil.copytree(EXAMPLES, scratch / "examples", ignore=ignored))
        (copy / ".git").mkdir()
        file = copy / "trials" / "hosts.toml"
        tables = [
            TRIALS_HOST.format(name=name, address=ADDRESS, python=scratch / PYTHON,
                               directory=scratch / name) for name in HOSTS[:2]
        ]  # fmt: skip
        text = file.read_text().partition("[hosts.")[0]
        text = text.replace("slots_per_host = 4", "slots_per_host = 2")
        text = text.replace("[training]\n", "[training]\norphan_timeout_s = 20\n", 1)
        file.write_text("".join([f'ssh_config = "{config}"\n', text, *tables]))
        trust(file)
        yield file.parent, sshds


@contextmanager
def _sshds(scratch: Path) -> Iterator[tuple[dict[str, Sshd], Path]]:
    """Yield the sshd of each host, and an ssh_config with all of them."""
    keys = Keys(scratch / "keys")
    sshds = {name: Sshd(scratch, keys) for name in HOSTS}
    try:
        known_hosts, config = scratch / "known_hosts", scratch / "ssh_config"
        known_hosts.write_text("".join(sshd.known_hosts_line for sshd in sshds.values()))
        write_ssh_config(config, keys, known_hosts, {n: s.entry() for n, s in sshds.items()})
        yield sshds, config
    finally:
        for sshd in sshds.values():
            sshd.stop()


def _project(scratch: Path, ssh_config: Path, steps: int) -> Path:
    (scratch / "venv").symlink_to(sys.prefix)  # messages of TensorFlow show this path
    folder = scratch / "digits"
    shutil.copytree(
        EXAMPLES / "digits", folder, ignore=shutil.ignore_patterns("runs", "__pycache__", "*.toml")
    )
    ports = iter(free_ports(PORTS * len(HOSTS)))
    tables = [
        HOST.format(
            name=name, job="workers" if number else "ps", address=ADDRESS,
            ports=[next(ports) for _ in range(PORTS)], python=scratch / PYTHON,
            directory=scratch / name,
        )
        for number, name in enumerate(HOSTS)
    ]  # fmt: skip
    text = TOML.format(ssh_config=ssh_config, steps=steps)
    (folder / "hosts.toml").write_text("".join([text, *tables]))
    trust(folder / "hosts.toml")
    return folder
