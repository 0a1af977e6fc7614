"""Three hosts on this machine, each with an sshd of its own, and a project that trains on them."""

from __future__ import annotations

import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from support.ports import ADDRESS, free_ports
from support.sshd import Keys, Sshd, write_ssh_config

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "digits"
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


@contextmanager
def training_site(scratch: Path, steps: int) -> Iterator[Path]:
    """Yield the folder of a project whose first host has a ps, and the others a worker each."""
    keys = Keys(scratch / "keys")
    sshds = {name: Sshd(scratch, keys) for name in HOSTS}
    try:
        known_hosts, config = scratch / "known_hosts", scratch / "ssh_config"
        known_hosts.write_text("".join(sshd.known_hosts_line for sshd in sshds.values()))
        write_ssh_config(config, keys, known_hosts, {n: s.entry() for n, s in sshds.items()})
        yield _project(scratch, config, steps)
    finally:
        for sshd in sshds.values():
            sshd.stop()


def _project(scratch: Path, ssh_config: Path, steps: int) -> Path:
    (scratch / "venv").symlink_to(sys.prefix)  # messages of TensorFlow show this path
    folder = scratch / "digits"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("runs", "__pycache__", "*.toml"))
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
    return folder
