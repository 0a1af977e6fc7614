"""The GPUs of this machine, as nvidia-smi lists them."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import time

from ...shared import TYPE_CHECKING
from ...shared.protocol.record import Record
from ...shared.protocol.reports import GpuUse
from ..refusal import Refusal

if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

NVIDIA_SMI_S = 30.0
OUTPUT_S = 1.0
QUERY = "--query-gpu=index,utilization.gpu,memory.used,memory.total,uuid,name"
USERS = "--query-compute-apps=gpu_uuid,pid,used_memory,process_name"
TABLE = "--format=csv,noheader,nounits"
MEBIBYTE = 1 << 20
SAMPLE_EVERY_S = 5.0
SAMPLE_CPU_SHARE = 0.003  # of one core, for nvidia-smi
GPU = re.compile(r"^GPU (\d+):(?:.*\(UUID: (GPU-[\w-]+)\))?", re.M | re.ASCII)


def gpu_resources() -> Dict[int, str]:
    """Return the name of each GPU's lease by the GPU's index; {} without nvidia-smi. Raises Refusal
    if it does not answer."""
    return parse_gpus(_ask_nvidia_smi("-L"))


def gpu_count() -> int:
    """Return the number of GPUs of this machine without nvidia-smi, which can take a second."""
    try:
        return len(os.listdir("/proc/driver/nvidia/gpus"))
    except OSError:
        return 0


def run_nvidia_smi(*arguments: str) -> str:
    """Return the output of nvidia-smi, or "" if it does not exist or does not end within 30 s."""
    try:
        return _ask_nvidia_smi(*arguments)
    except Refusal:
        return ""


def _ask_nvidia_smi(*arguments: str) -> str:
    """Return the output of nvidia-smi, or "" if it does not exist. Raises Refusal after 30 s.

    A process that hangs in the driver can't be killed, so nothing waits for its end.
    """
    try:
        asked = subprocess.Popen(
            ["nvidia-smi", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except OSError:
        return ""
    try:
        return asked.communicate(timeout=NVIDIA_SMI_S)[0].decode(errors="replace")
    except subprocess.TimeoutExpired:
        asked.kill()
        raise Refusal(
            "nvidia-smi does not answer within {:g} s, so its GPUs can't be used".format(
                NVIDIA_SMI_S
            ),
            "the driver may hang: sudo dmesg | grep NVRM shows why; often only a reboot helps",
        ) from None


def parse_gpus(listing: str) -> Dict[int, str]:
    """Parse lines such as `GPU 0: NVIDIA H100 (UUID: GPU-5f1c…)`. Pure.

    Indented lines are MIG partitions and are skipped.
    """
    return {int(number): "gpu/{}".format(uuid or number) for number, uuid in GPU.findall(listing)}


class GpuProcess(Record):
    """A process that computes on a GPU. `program` is what nvidia-smi calls it, "" if it does not;
    `used_bytes` is its share of the GPU's memory, None if that is hidden."""

    pid: int
    program: str
    used_bytes: Optional[int]


class Gpu(Record):
    """A GPU, what it does, and which processes compute on it. `resource` names its lease."""

    index: int
    resource: str
    name: str
    use: GpuUse
    processes: List[GpuProcess]


def look() -> List[Gpu]:
    """Return all GPUs that nvidia-smi describes. Raises Refusal if it does not answer."""
    from ...shared import parallel  # a sampler does not need it

    users = parallel.begin(lambda: _ask_nvidia_smi(USERS, TABLE))
    return parse_look(_ask_nvidia_smi(QUERY, TABLE), users())


def parse_look(table: str, users: str) -> List[Gpu]:
    """Parse lines such as `0, 97, 71680, 81559, GPU-5f1c…, NVIDIA H100`, and of processes such as
    `GPU-5f1c…, 412, 71424, python3`. Lines that are not such lines are skipped. Pure."""
    processes: Dict[str, List[GpuProcess]] = {}
    for uuid, pid, used, program in _rows(users, 4):
        if pid.isdecimal():
            used_bytes = int(used) * MEBIBYTE if used.isdecimal() else None
            named = "" if program.startswith("[") else program  # [Insufficient Permissions]
            processes.setdefault(uuid, []).append(GpuProcess(int(pid), named, used_bytes))
    found = []
    for row in _rows(table, 6):
        for use in parse_use(", ".join(row)):
            uuid, name = row[4:]
            resource = "gpu/{}".format(uuid if uuid.startswith("GPU-") else row[0])
            found.append(Gpu(use.index, resource, name, use, processes.get(uuid, [])))
    return found


def _rows(table: str, columns: int) -> Iterator[List[str]]:
    """Yield the cells of each line that has as many of them; the last one may have commas."""
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.split(",", columns - 1)]
        if len(cells) == columns:
            yield cells


class NvidiaSmiSampler:
    """What nvidia-smi answers to a query about the GPUs of `indexes`, or all, as `parse` reads it.
    nvidia-smi can take seconds, so it runs beside the caller, every `every_s` seconds, or more
    rarely to use no more than this share of a core: `read` returns what it answered last.
    """

    _counted_s = 0.0  # of all samplers of this process

    def __init__(
        self,
        query: Sequence[str],
        parse: Callable[[str], List[Any]],
        indexes: Sequence[int],
        every_s: float,
        cpu_share: float,
    ) -> None:
        ids = ["--id=" + ",".join(map(str, indexes))] if indexes else []
        self._words = ["nvidia-smi", *query, *ids]
        self._parse = parse
        self.every_s = every_s
        self._cpu_share = cpu_share
        self._found: List[Any] = []
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._next_at = 0.0
        self._started_at = 0.0
        NvidiaSmiSampler._counted_s = _children_cpu_s()

    def read(self) -> List[Any]:
        """Return the newest answer, each time the same list, and ask again if it is time."""
        if self._process and self._process.poll() is not None:
            self._take_answer(self._process)
        if self._process is None and time.monotonic() >= self._next_at:
            self._ask()
        elif self._process and time.monotonic() > self._started_at + NVIDIA_SMI_S:
            self._process.kill()
        return self._found

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
        self._found = self._parse(_output(done).decode(errors="replace"))
        cpu_s = _children_cpu_s() - NvidiaSmiSampler._counted_s
        NvidiaSmiSampler._counted_s += cpu_s
        self._next_at = self._started_at + max(self.every_s, cpu_s / self._cpu_share)


class GpuSampler(NvidiaSmiSampler):
    """How busy the GPUs are: those of `indexes`, or all."""

    def __init__(self, indexes: Sequence[int] = (), every_s: float = SAMPLE_EVERY_S) -> None:
        super().__init__((QUERY, TABLE), parse_use, indexes, every_s, SAMPLE_CPU_SHARE)


def parse_use(table: str) -> List[GpuUse]:
    """Parse lines that begin as `0, 97, 71680, 81559` in percent and MiB; lines that do not are
    skipped. Pure."""
    found = []
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) >= 4 and all(cells[column].isdecimal() for column in (0, 2, 3)):
            busy = float(cells[1]) if cells[1].isdecimal() else None  # [N/A] with MIG
            used, total = (int(cell) * MEBIBYTE for cell in cells[2:4])
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
