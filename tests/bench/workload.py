"""The work for each tool: a source tree, a stub trainer on each host, and a checkpoint."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.agent.machine import grpc_health
from tfdeploy.hosts import agent_bundle

if TYPE_CHECKING:
    from bench.machines import Host

FILES, BYTES = 1500, 15_000_000
PORT = 2222  # of the stub, on every host
CHANGED = "package07/changed.py"
CHECKPOINTS = "/data/checkpoints"  # on the first host, the chief's
SHARDS, SHARD_MB, GROWN_MB = 4, 128, 64
STUB = Path(__file__).parent / "source"
WORDS = ("self", "def", "return", "import", "tensor", "graph", "session", "worker", "task", "loss",
         "cluster", "variable", "train", "step", "optimizer", "gradient", "checkpoint", "restore",
         "queue", "device", "placement", "shape", "dtype", "axis", "name", "scope")  # fmt: skip


@dataclass(frozen=True)
class Job:
    """One tool's work: its hosts, the tree, and its own folder on the controller (its HOME) and on
    each host."""

    hosts: tuple[Host, ...]
    source: Path
    folder: Path
    host_folder: str

    @property
    def collected(self) -> Path:
        """The folder for collected checkpoints, for the tools that need its path."""
        return self.folder / "collected"

    @property
    def names(self) -> list[str]:
        return [host.name for host in self.hosts]

    @property
    def worker_hosts(self) -> str:
        return ",".join(f"{host.address}:{PORT}" for host in self.hosts)

    # What tools without a launcher run on each host; the commands contain no quote.
    @property
    def start(self) -> str:
        return f"bash {self.host_folder}/code/begin {self.worker_hosts}"

    @property
    def status(self) -> str:
        return f"pgrep -F {self.host_folder}/pid"

    @property
    def stop(self) -> str:
        wait = f"while {self.status} >/dev/null; do sleep 0.05; done"
        return f"pkill -F {self.host_folder}/pid; {wait}; rm {self.host_folder}/pid"


def make_tree(root: Path) -> None:
    """Write the same 1,500 files of source-like text at each call, including the stub trainer."""
    chance = random.Random(1)
    weights = [chance.lognormvariate(0, 1.2) for _ in range(FILES - 3)]
    text = _text(chance, 2_000_000)
    for number, weight in enumerate(weights):
        size = int(weight * BYTES / sum(weights))
        begin = chance.randrange(len(text) - size)
        file = root / f"package{number % 30:02d}" / f"part{number % 7}" / f"module{number:04d}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text[begin : begin + size])
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
    shutil.copytree(STUB, root, dirs_exist_ok=True)
    change(root)


def change(root: Path) -> None:
    """Give one file a new content and length."""
    with (root / CHANGED).open("a") as file:
        file.write(f"# change at byte {file.tell()}\n")


def digest(root: Path) -> str:
    """Return what `digest_on` returns for a host that has the whole tree."""
    count = sum(len(files) for _, _, files in os.walk(root))
    return f"{count} {hashlib.md5((root / CHANGED).read_bytes()).hexdigest()}"


def digest_on(host: Host, folder: str) -> str:
    """Return the number of files in a folder on a host, and the MD5 of the one that changes."""
    count = f"cd {folder} && find . -type f -printf x | wc -c"
    return " ".join(host.run(f"{count} && md5sum {CHANGED}").split()[:2])


def count_ready(job: Job) -> int:
    """Return how many stubs answer as the task that the tool started.

    Each is asked by a process of its own host, because a guarded task admits no other machine.
    """
    agent = agent_bundle.bundle()  # what the product sends, so that it has all that it imports

    def verdict(index: int, host: Host) -> str:
        ask = f"print(grpc_health.probe('localhost', {PORT}, 'worker:{index}').verdict)"
        program = f"from tfdeploy.agent.machine import grpc_health; {ask}"
        probe = f'PYTHONPATH="$zip" python3 -c "{program}"'
        return host.run(f'zip=$(mktemp) && cat >"$zip" && {probe}; rm "$zip"', agent)

    with ThreadPoolExecutor(4) as pool:
        verdicts = list(pool.map(verdict, range(len(job.hosts)), job.hosts))
    return verdicts.count(grpc_health.READY)


def make_checkpoint(chief: Host, step: int) -> None:
    """Write the newest checkpoint on the chief: 512 MB for step 1, 64 MB for a later step."""
    shards, size = (SHARDS, SHARD_MB) if step == 1 else (1, GROWN_MB)
    name = f"{CHECKPOINTS}/model.ckpt-{step}"
    lines = [f"mkdir -p {CHECKPOINTS}"]
    for shard in range(shards):
        file = f"{name}.data-{shard:05d}-of-{shards:05d}"
        lines.append(f"[ -e {file} ] || head -c {size << 20} /dev/urandom >{file}")
    state = [f'model_checkpoint_path: "model.ckpt-{step}"']  # as TensorFlow writes it
    state += [f'all_model_checkpoint_paths: "model.ckpt-{each}"' for each in range(1, step + 1)]
    text = "\n".join(state)
    lines += [f"echo index >{name}.index", f"echo '{text}' >{CHECKPOINTS}/checkpoint"]
    chief.run("\n".join(["set -e", *lines]))


def delete_later_checkpoints(chief: Host) -> None:
    make_checkpoint(chief, 1)
    chief.run(f"find {CHECKPOINTS} -name 'model.ckpt-[!1]*' -delete")


def checksums(chief: Host, step: int) -> set[str]:
    """Return the SHA-256 of the checkpoint's data files."""
    output = chief.run(f"sha256sum {CHECKPOINTS}/model.ckpt-{step}.data-*")
    return {line.split()[0] for line in output.splitlines()}


def checksums_below(folder: Path) -> set[str]:
    """Return the SHA-256 of all checkpoint data below a folder."""
    found = folder.rglob("model.ckpt-*.data-*")
    return {hashlib.file_digest(file.open("rb"), "sha256").hexdigest() for file in found}


def _text(chance: random.Random, size: int) -> bytes:
    """Return source-like text, which compresses to about a quarter."""
    lines: list[str] = []
    length = 0
    while length < size:
        words = [chance.choice(WORDS) for _ in range(chance.randrange(3, 9))]
        words[-1] += str(chance.randrange(1000))
        lines.append(" " * (4 * chance.randrange(4)) + " ".join(words) + "\n")
        length += len(lines[-1])
    return "".join(lines).encode()


if __name__ == "__main__":
    make_tree(Path(sys.argv[1]))
