"""The GPUs of this machine, as nvidia-smi lists them."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import time

from ...shared import TYPE_CHECKING
from ...shared.protocol.reports import GpuUse
from ..refusal import Refusal
from . import process

if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional, Sequence

NVIDIA_SMI_S = 30.0
OUTPUT_S = 1.0
QUERY = "--query-gpu=index,utilization.gpu,memory.used,memory.total"
USERS = "--query-compute-apps=gpu_uuid,pid"
TABLE = "--format=csv,noheader,nounits"
MEBIBYTE, GIBIBYTE = 1 << 20, 1 << 30
FILLED = 0.5  # of a GPU's memory: TensorFlow, which takes nearly all of it, has no room then
FREE_WAIT_S, FREE_PAUSE_S = 5.0, 0.5
SAMPLE_EVERY_S = 5.0
SAMPLE_CPU_SHARE = 0.003  # of one core, for nvidia-smi
GPU = re.compile(r"^GPU (\d+):(?:.*\(UUID: (GPU-[\w-]+)\))?", re.M | re.ASCII)


def gpu_resources() -> Dict[int, str]:
    """Return the name of each GPU's lease by the GPU's index; {} without nvidia-smi."""
    return parse_gpus(run_nvidia_smi("-L"))


def gpu_count() -> int:
    """Return the number of GPUs of this machine without nvidia-smi, which can take a second."""
    try:
        return len(os.listdir("/proc/driver/nvidia/gpus"))
    except OSError:
        return 0


def run_nvidia_smi(*arguments: str) -> str:
    """Return the output of nvidia-smi, or "" if it does not exist or does not end within 30 s."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=NVIDIA_SMI_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


def parse_gpus(listing: str) -> Dict[int, str]:
    """Parse lines such as `GPU 0: NVIDIA H100 (UUID: GPU-5f1c…)`. Pure.

    Indented lines are MIG partitions and are skipped.
    """
    return {int(number): "gpu/{}".format(uuid or number) for number, uuid in GPU.findall(listing)}


def require_free(gpus: Dict[int, str]) -> None:
    """Raise Refusal if programs that hold no lease use most of the memory of one of these GPUs,
    the names of whose leases are given by their indexes."""
    deadline = time.monotonic() + FREE_WAIT_S
    while gpus:
        refusal = next(filled_refusals(gpus), None)
        if refusal is None:
            return
        if time.monotonic() > deadline:
            raise refusal
        time.sleep(FREE_PAUSE_S)  # the driver frees the memory of a process after it has ended


def filled_refusals(gpus: Dict[int, str]) -> Iterator[Refusal]:
    """Yield the refusal of each of these GPUs whose memory other programs fill."""
    ids = "--id=" + ",".join(map(str, gpus))
    for use in parse_use(run_nvidia_smi(QUERY, TABLE, ids)):
        if use.used_bytes < FILLED * use.total_bytes:
            continue
        pids = parse_users(run_nvidia_smi(USERS, TABLE), gpus[use.index])
        yield Refusal(
            "GPU {} is taken: {:.1f} of its {:.1f} GiB are used by {}".format(
                use.index,
                use.used_bytes / GIBIBYTE,
                use.total_bytes / GIBIBYTE,
                ", ".join(map(process.name_with_user, pids)) or "programs that are not visible",
            ),
            "wait until they end, or give the host other GPUs",
            busy=True,
        )


def parse_users(table: str, resource: str) -> List[int]:
    """Parse lines such as `GPU-5f1c…, 412`: return the pids of the programs that use the GPU with
    this lease. Pure."""
    cells = ([cell.strip() for cell in line.split(",")] for line in table.splitlines())
    return [int(c[1]) for c in cells if "gpu/" + c[0] == resource and c[1:] and c[1].isdecimal()]


class GpuSampler:
    """How busy the GPUs are: those of `indexes`, or all. nvidia-smi can take seconds, so it runs
    beside the caller, every `every_s` seconds or more rarely: `read` returns what it answered last.
    """

    def __init__(self, indexes: Sequence[int] = (), every_s: float = SAMPLE_EVERY_S) -> None:
        ids = ["--id=" + ",".join(map(str, indexes))] if indexes else []
        self._words = ["nvidia-smi", QUERY, TABLE, *ids]
        self.every_s = every_s
        self._gpus: List[GpuUse] = []
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._next_at = 0.0
        self._started_at = 0.0
        self._counted_s = _children_cpu_s()

    def read(self) -> List[GpuUse]:
        """Return the newest answer, each time the same list, and ask again if it is time."""
        if self._process and self._process.poll() is not None:
            self._take_answer(self._process)
        if self._process is None and time.monotonic() >= self._next_at:
            self._ask()
        elif self._process and time.monotonic() > self._started_at + NVIDIA_SMI_S:
            self._process.kill()
        return self._gpus

    def close(self) -> None:
        if self._process:
            self._process.kill()
            _output(self._process)

    def _ask(self) -> None:
        self._started_at = time.monotonic()
        try:
            self._process = subprocess.Popen(
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError:  # this host has no GPU
            self._next_at = float("inf")

    def _take_answer(self, done: subprocess.Popen[bytes]) -> None:
        self._process = None
        self._gpus = parse_use(_output(done).decode(errors="replace"))
        cpu_s = _children_cpu_s() - self._counted_s
        self._counted_s += cpu_s
        self._next_at = self._started_at + max(self.every_s, cpu_s / SAMPLE_CPU_SHARE)


def parse_use(table: str) -> List[GpuUse]:
    """Parse lines such as `0, 97, 71680, 81559` in percent and MiB; lines that are not such lines
    are skipped. Pure."""
    found = []
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 4 and all(cells[column].isdecimal() for column in (0, 2, 3)):
            busy = float(cells[1]) if cells[1].isdecimal() else None  # [N/A] with MIG
            used, total = (int(cell) * MEBIBYTE for cell in cells[2:])
            found.append(GpuUse(int(cells[0]), busy, used, total))
    return found


def _output(ended: subprocess.Popen[bytes]) -> bytes:
    """Return the output of a process that has ended or was killed. b"" if it still hangs in its
    driver, or has left a process that keeps the pipe open."""
    try:
        return ended.communicate(timeout=OUTPUT_S)[0]
    except subprocess.TimeoutExpired:
        return b""


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
