"""A stand-in for nvidia-smi, with GPUs and processes: no GPU is needed.

Its lines are those of the drivers 470 to 570, as NVIDIA's documentation and users' reports have
them, and an H200 with the driver 580 printed the same. A program of another container, or of a user
whose processes are hidden, is `[Not Found]` or `[Insufficient Permissions]`; what a GPU does not
report is `[N/A]`.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

NAME, TOTAL_MIB = "NVIDIA H100 80GB HBM3", 81559
DETAILS = f'<gpu id="00000000:3B:0{{}}.0"><product_name>{NAME}</product_name>{{}}</gpu>'
PROGRAM = """#!{python} -SE
import json, os, sys, time
folder = os.path.dirname(os.path.abspath(__file__))
state = json.load(open(folder + "/gpus.json"))
with open(folder + "/calls", "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
if state["mode"] == "hangs" or sys.argv[1].startswith(state["hangs_at"] or "never"):
    time.sleep(600)
if state["mode"] == "fails":
    print("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure "
          "that the latest NVIDIA driver is installed and running.\\n")
    sys.exit(9)
option, _, fields = sys.argv[1].partition("=")
ids = [word[5:].split(",") for word in sys.argv if word.startswith("--id=")]
if option == "-q":
    chosen = [gpu for gpu in state["gpus"] if not ids or str(gpu["index"]) in ids[0]]
    print("<nvidia_smi_log>", *(gpu["details"] for gpu in chosen), "</nvidia_smi_log>")
for gpu in state["gpus"]:
    if option == "-L":
        print("GPU {{index}}: {{name}} (UUID: {{uuid}})".format(**gpu))
    elif option == "--query-gpu" and (not ids or str(gpu["index"]) in ids[0]):
        print(", ".join(str(gpu[field]) for field in fields.split(",")))
    elif option == "--query-compute-apps":
        for process in gpu["processes"]:
            process["gpu_uuid"] = gpu["uuid"]
            print(", ".join(str(process[field]) for field in fields.split(",")))
"""


class StubNvidiaSmi:
    """An nvidia-smi in `folder`, which must be on the PATH, with `count` GPUs.

    Two stubs have GPUs with different UUIDs, so tests that run side by side share no lease.
    """

    def __init__(self, folder: Path, count: int, python: str = sys.executable) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self._state: dict[str, Any] = {
            "mode": "",
            "hangs_at": "",
            "gpus": [],
        }
        for index in range(count):
            uuid = f"GPU-{os.getpid():08x}-{abs(hash(str(folder))) % 65536:04x}-{index:012x}"
            self._state["gpus"].append({
                "index": index, "name": NAME, "uuid": uuid,
                "utilization.gpu": 0, "memory.used": 4, "memory.total": TOTAL_MIB,
                "processes": [], "driver_version": "550.54.15",
                "details": DETAILS.format(index, ""),
            })  # fmt: skip
        self._write()
        program = folder / "nvidia-smi"
        program.write_text(PROGRAM.format(python=python))
        program.chmod(0o755)

    @classmethod
    def opened(cls, folder: Path) -> StubNvidiaSmi:
        """Return the one that is in `folder` already."""
        stub = cls.__new__(cls)
        stub.folder, stub._state = folder, json.loads((folder / "gpus.json").read_text())
        return stub

    def use(self, gpu: int, pid: int, mib: int | str = 71680, program: str = "python3") -> None:
        """Let a process use a GPU."""
        process = {"pid": pid, "used_memory": mib, "process_name": program}
        self._state["gpus"][gpu]["processes"].append(process)
        if isinstance(mib, int):
            self._state["gpus"][gpu]["memory.used"] += mib
        self._write()

    def set(self, gpu: int, **values: Any) -> None:
        """Set what a GPU reports: used, total or busy, in MiB and percent."""
        names = {"used": "memory.used", "total": "memory.total", "busy": "utilization.gpu"}
        self._state["gpus"][gpu].update({names[key]: value for key, value in values.items()})
        self._write()

    def leave(self, gpu: int) -> None:
        """End what uses a GPU."""
        self._state["gpus"][gpu].update({"processes": [], "memory.used": 4})
        self._write()

    def describe(self, gpu: int, elements: str) -> None:
        """Print these elements of a GPU with -q, such as `<ecc_errors>…</ecc_errors>`."""
        self._state["gpus"][gpu]["details"] = DETAILS.format(gpu, elements)
        self._write()

    def behave(self, mode: str = "", hangs_at: str = "") -> None:
        """Let it hang, fail as without a driver, or hang when it is asked with `hangs_at`."""
        self._state.update(mode=mode, hangs_at=hangs_at)
        self._write()

    @property
    def gpus(self) -> list[dict[str, Any]]:
        return list(self._state["gpus"])

    def resource(self, gpu: int) -> str:
        """Return the name of a GPU's lease."""
        return f"gpu/{self._state['gpus'][gpu]['uuid']}"

    def _write(self) -> None:
        temporary = self.folder / "gpus.json.new"
        temporary.write_text(json.dumps(self._state))
        temporary.rename(self.folder / "gpus.json")
