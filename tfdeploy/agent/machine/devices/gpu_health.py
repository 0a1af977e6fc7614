"""What may be wrong with the GPUs of this host, as `nvidia-smi -q -x` and the kernel's log say it.

The names of the elements are those of the drivers 390 to 580; what a driver or a GPU does not
report is not there, or N/A. The kernel's log is only read if this user may read it.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Dict, Iterator, List, Sequence, Tuple
from xml.etree.ElementTree import Element

from . import nvidia

KERNEL_LOG = "/dev/kmsg"
EVERY_S = 60.0
CPU_SHARE = 0.001  # of a core, for each task: a host may have eight
RECORD_BYTES = 1 << 13
MAX_RECORDS = 100_000
NO_ACTION = "None"
PENDING = (
    *("pending_retirement", "pending_blacklist", "remapped_row_pending"),
    *("channel_repair_pending", "tpc_repair_pending"),
)
UNREPAIRABLE = ("remapped_rows/remapped_row_failure", "ecc_errors/unrepairable_memory")
# What a program's own fault leaves in the log: an index out of range, for example, is Xid 43, and
# the GPU works on. Source: xidsToSkip in internal/rm/health.go of NVIDIA's k8s-device-plugin.
XIDS_OF_PROGRAMS = ("13", "31", "43", "45", "68", "109")
XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})[^)]*\): (\d+)")
SLOWDOWN = re.compile(
    r"clocks_(?:throttle|event)_reason_((?:hw|sw)_(?:thermal_|power_brake_)?slowdown)$"
)


def problems() -> Dict[int, str]:
    """Return a sentence about each GPU with which something may be wrong, by its index."""
    return dict(parse(nvidia.run_nvidia_smi(*nvidia.DETAILS), xids()))


def sampler(indexes: Sequence[int]) -> nvidia.NvidiaSmiSampler:
    """Return what looks at these GPUs now and then."""

    def read(listing: str) -> List[str]:
        return [words for _, words in parse(listing, xids(), indexes)]

    return nvidia.NvidiaSmiSampler(nvidia.DETAILS, read, indexes, EVERY_S, CPU_SHARE)


def parse(
    listing: str, xids: Dict[str, List[str]], indexes: Sequence[int] = ()
) -> Iterator[Tuple[int, str]]:
    """Yield the index and the sentence of each GPU in a listing of all, or of these `indexes`.
    `xids` are the numbers of the kernel's Xid messages by PCI address, such as 0000:3b:00. Pure."""
    for index, gpu, _ in nvidia.numbered(listing, indexes):
        found = [*_memory(gpu), *_speed(gpu), *_recovery(gpu)]
        numbers = xids.get(gpu.get("id", "").lower()[-12:-2], [])
        if numbers:
            found.append("the kernel has logged Xid {}".format(", ".join(dict.fromkeys(numbers))))
        if found:
            words = "GPU {} ({}): {}"
            yield index, words.format(index, gpu.findtext("product_name"), "; ".join(found))


def _memory(gpu: Element) -> Iterator[str]:
    """Yield what is wrong with the memory."""
    volatile = gpu.find("ecc_errors/volatile")
    cells = [] if volatile is None else [*volatile.iter()]
    errors = sum(nvidia.number(each.text) for each in cells if "uncorrectable" in each.tag)
    errors += nvidia.number(gpu.findtext("ecc_errors/volatile/double_bit/total"))  # older drivers
    if errors:
        yield "{} uncorrectable memory errors since it was reset".format(errors)
    retired = nvidia.number(gpu.findtext("retired_pages/double_bit_retirement/retired_count"))
    if retired:
        yield "{} pages of its memory are retired".format(retired)
    pending = [each.text for each in gpu.iter() if each.tag in PENDING]
    if "Yes" in pending:
        yield "a faulty part is replaced only after a reset"
    if "Yes" in map(gpu.findtext, UNREPAIRABLE):
        yield "a broken part of its memory can't be replaced"


def _speed(gpu: Element) -> Iterator[str]:
    """Yield what makes it slow."""
    reasons = [SLOWDOWN.match(each.tag) for each in gpu.iter() if each.text == "Active"]
    names = [reason[1].replace("_", " ") for reason in reasons if reason]
    if names:
        yield "its clocks are throttled ({})".format(", ".join(names))
    links = "pci/pci_gpu_link_info/link_widths/{}_link_width"
    now, most = (nvidia.number(gpu.findtext(links.format(name))) for name in ("current", "max"))
    if 0 < now < most:
        yield "its PCIe link has {} of {} lanes".format(now, most)
    heat = nvidia.number(gpu.findtext("temperature/gpu_temp"))
    slow = nvidia.number(gpu.findtext("temperature/gpu_temp_slow_threshold"))
    if heat >= slow > 0:
        yield "it has {} C, and slows down from {} C on".format(heat, slow)


def _recovery(gpu: Element) -> Iterator[str]:
    """Yield what the driver wants, such as `Reset` or `Reboot`. Drivers from 570 on say it."""
    action = gpu.findtext("gpu_recovery_action", NO_ACTION)
    if action not in (NO_ACTION, "N/A"):
        yield "its driver asks for: {}".format(action)


def xids(kernel_log: str = KERNEL_LOG) -> Dict[str, List[str]]:
    """Return the Xid numbers in the kernel's log since the boot, by PCI address, without those of
    programs' faults. Source: Documentation/ABI/testing/dev-kmsg: one record for each read."""
    found: Dict[str, List[str]] = {}
    try:
        log = os.open(kernel_log, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return found
    with suppress(OSError):  # its end, or a record was overwritten
        for _ in range(MAX_RECORDS):
            match = XID.search(os.read(log, RECORD_BYTES).decode(errors="replace"))
            if match and match[2] not in XIDS_OF_PROGRAMS:
                found.setdefault(match[1], []).append(match[2])
    os.close(log)
    return found
