#!/usr/bin/env python3
"""The command `gpu` on a machine of a session: what happens to the GPUs of its nvidia-smi.

gpu use INDEX PID       a process uses 70 GiB of a GPU
gpu break INDEX XID     its memory has errors, and the kernel has logged this Xid
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.nvidia_smi import StubNvidiaSmi

ERRORS = "<ecc_errors><volatile><dram_uncorrectable>3</dram_uncorrectable></volatile></ecc_errors>"
RECORD = "4,1,2,-;NVRM: Xid (PCI:0000:3b:0{}): {}, pid='<unknown>', Contained ECC error\n"


def main(command: str, index: int, value: int) -> None:
    stub = StubNvidiaSmi.opened(Path.home() / "bin")
    if command == "use":
        stub.use(index, value)
        return
    stub.describe(index, ERRORS)
    log = stub.folder / "kmsg"
    log.write_text(RECORD.format(index, value))
    subprocess.run(["mount", "--bind", log, "/dev/kmsg"], check=True)


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
