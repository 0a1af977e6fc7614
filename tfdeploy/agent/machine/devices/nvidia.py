"""NVIDIA's GPUs, as nvidia-smi lists them. Each MIG instance counts as a GPU, and its GPU does not.

Only `nvidia-smi -q -x` has the memory and the processes of an instance; none reports its use.
"""

from __future__ import annotations

import glob
import os
import re
import resource
import subprocess
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple
from xml.etree.ElementTree import Element

from ....shared.protocol.record import Record
from ....shared.protocol.reports import GpuUse
from ...refusal import Refusal

NVIDIA_SMI_S = 30.0
OUTPUT_S = 1.0
QUERY = "--query-gpu=index,utilization.gpu,memory.used,memory.total,uuid,name"
USERS = "--query-compute-apps=gpu_uuid,pid,used_memory,process_name"
TABLE = "--format=csv,noheader,nounits"
DETAILS = ("-q", "-x")
# Source: NVIDIA's MIG User Guide, Device Nodes and Capabilities.
INSTANCES = "/proc/driver/nvidia/capabilities/gpu*/mig/gi*"
INSTANCE = ("gpu_instance_id", "compute_instance_id")
MEBIBYTE = 1 << 20
SAMPLE_EVERY_S = 5.0
SAMPLE_CPU_SHARE = 0.003  # of one core, for nvidia-smi
NO_DEVICES = re.compile("No devices (?:were )?found")
LISTED = re.compile(
    r"^(?:GPU (\d+): (.*?)|\s+MIG (\S+)\s+Device\s+\d+:)(?: \(UUID: ((?:GPU|MIG)-[^)]+)\))?$",
    re.M | re.ASCII,
)


def listed() -> List[ListedGpu]:
    """List the GPUs; none without nvidia-smi. Raises Refusal if it does not answer, or fails."""
    output = _ask_nvidia_smi("-L").strip()
    found = parse_listing(output)
    if not found and output and not NO_DEVICES.match(output):
        raise Refusal(
            "nvidia-smi fails: {}".format(output.partition("\n")[0]),
            "programs can't use its GPUs either; after an update of the driver, a reboot helps",
        )
    return found


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
        asked = _start(arguments)
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


def parse_listing(listing: str) -> List[ListedGpu]:
    """Parse lines such as `GPU 0: NVIDIA H100 (UUID: GPU-5f1c…)`, and below it of MIG instances
    such as `  MIG 1g.10gb Device 0: (UUID: MIG-77f3…)`. With instances, all are numbered in this
    order. Pure."""
    found: List[Tuple[str, str, str]] = []
    gpu = ("", "", "")
    for index, name, profile, uuid in LISTED.findall(listing):
        if index:
            gpu = (index, name, uuid)
            found.append(gpu)
        else:
            found = [each for each in found if each is not gpu]
            found.append(("", "{} MIG {}".format(gpu[1], profile), uuid))
    divided = any(not index for index, _, _ in found)
    return [
        ListedGpu(place if divided else int(index), "gpu/{}".format(uuid or index), name)
        for place, (index, name, uuid) in enumerate(found)
    ]


class GpuProcess(Record):
    """A process that computes on a GPU. `program` is what nvidia-smi calls it, "" if it does not;
    `used_bytes` is its share of the GPU's memory, None if that is hidden."""

    pid: int
    program: str
    used_bytes: Optional[int]


class ListedGpu(Record):
    """A GPU, or a MIG instance, with its index in hosts.toml. `resource` names its lease."""

    index: int
    resource: str
    name: str


class Gpu(ListedGpu):
    """A GPU, what it does, and which processes compute on it."""

    use: GpuUse
    processes: List[GpuProcess]


def look() -> List[Gpu]:
    """Return all GPUs that nvidia-smi describes. Raises Refusal if it does not answer."""
    from ....shared import parallel  # a sampler does not need it

    if is_divided():
        return parse_divided(listed(), _ask_nvidia_smi(*DETAILS))
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


def is_divided() -> bool:
    """Return whether a GPU of this machine has MIG instances, without nvidia-smi."""
    return bool(glob.glob(INSTANCES))


def numbered(listing: str, indexes: Sequence[int] = ()) -> List[Tuple[int, Element, Element]]:
    """Return the index, the GPU, and the instance or again the GPU, for each of `indexes`, or for
    all. The listing has all GPUs, or only those of `indexes`. Pure."""
    from xml.etree import ElementTree  # only hosts with GPUs need it

    try:
        gpus = ElementTree.fromstring(listing).findall("gpu")
    except ElementTree.ParseError:
        return []
    found = [(gpu, each) for gpu in gpus for each in gpu.findall("mig_devices/mig_device") or [gpu]]
    numbers = indexes if len(found) <= len(indexes) else range(len(found))
    rows = zip(numbers, found)  # noqa: B905 - Python 3.8
    return [(number, *each) for number, each in rows if not indexes or number in indexes]


def parse_divided(listed: List[ListedGpu], listing: str) -> List[Gpu]:
    """Return what was listed, with its use and its processes. Pure."""
    return [
        Gpu(each.index, each.resource, each.name, _use_of(index, part), [*_processes(gpu, part)])
        for each, (index, gpu, part) in zip(listed, numbered(listing))  # noqa: B905 - Python 3.8
    ]


def _use_of(index: int, part: Element) -> GpuUse:
    busy = part.findtext("utilization/gpu_util", "")  # instances do not have it
    used, total = (number(part.findtext("fb_memory_usage/" + key)) for key in ("used", "total"))
    busy_percent = float(number(busy)) if busy[:1].isdecimal() else None
    return GpuUse(index, busy_percent, used * MEBIBYTE, total * MEBIBYTE)


def _processes(gpu: Element, part: Element) -> Iterator[GpuProcess]:
    """Yield the processes that compute on an instance, or on a GPU without instances."""
    own = [part.findtext(key) for key in INSTANCE if part is not gpu]
    for each in gpu.iterfind("processes/process_info"):
        is_its_own = not own or own == [each.findtext(key) for key in INSTANCE]
        if is_its_own and "C" in each.findtext("type", ""):
            program = each.findtext("process_name", "")
            named = "" if program.startswith(("[", "Insufficient")) else program
            used_bytes = number(each.findtext("used_memory")) * MEBIBYTE or None
            yield GpuProcess(number(each.findtext("pid")), named, used_bytes)


def number(text: object) -> int:
    """Return the number at the start of a text such as "16x" or "298 MiB"; 0 if there is none."""
    match = re.match(r"\d+", str(text).strip())
    return int(match[0]) if match else 0


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
        # With MIG, indexes are not those of nvidia-smi.
        ids = ["--id=" + ",".join(map(str, indexes))] if indexes and not is_divided() else []
        self._words = [*query, *ids]
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
            self._process = _start(self._words)
        except OSError:  # this host has no GPU
            self._next_at = float("inf")

    def _take_answer(self, done: subprocess.Popen[bytes]) -> None:
        self._process = None
        self._found = self._parse(_output(done).decode(errors="replace"))
        cpu_s = _children_cpu_s() - NvidiaSmiSampler._counted_s
        NvidiaSmiSampler._counted_s += cpu_s
        self._next_at = self._started_at + max(self.every_s, cpu_s / self._cpu_share)


class GpuSampler(NvidiaSmiSampler):
    """A GpuUseSampler of the GPUs of `indexes`, or all (vendors.py)."""

    def __init__(self, indexes: Sequence[int] = (), every_s: float = SAMPLE_EVERY_S) -> None:
        def parts(listing: str) -> List[GpuUse]:
            return [_use_of(index, part) for index, _, part in numbered(listing, indexes)]

        query, parse = (DETAILS, parts) if is_divided() else ((QUERY, TABLE), parse_use)
        super().__init__(query, parse, indexes, every_s, SAMPLE_CPU_SHARE)


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


def _start(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    null, pipe = subprocess.DEVNULL, subprocess.PIPE
    return subprocess.Popen(["nvidia-smi", *arguments], stdin=null, stdout=pipe, stderr=null)


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
