"""A release of many bytes over a narrow way out: sent to each host, or once and then passed on."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench import results
from bench.machines import HERE, SSH_CONFIG, everywhere, hosts
from bench.tools import TFDEPLOY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.machines import Host

BRIDGE = "docker0"  # what hosts send each other does not pass its queue
THERE = "/data/relay"
FILES = 4


def main() -> int:
    wanted = _arguments()
    rows = []
    with tempfile.TemporaryDirectory(prefix="tfb-") as name, _narrow(wanted.mbit):
        folder = Path(name)
        for n in wanted.n:
            for relay in (False, True):
                wall_s = _pushed(folder, hosts(n), relay, wanted.mb)
                alone_s = wanted.mb * 8.388608 / wanted.mbit
                rows.append(
                    {"n": n, "relay": relay, "wall_s": round(wall_s, 2),
                     "times_one": round(wall_s / alone_s, 2)}
                )  # fmt: skip
                print(json.dumps(rows[-1]), flush=True)
    told = {"machine": results.machine(), "mb": wanted.mb, "mbit": wanted.mbit, "rows": rows}
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / "relay.json").write_text(json.dumps(told, indent=1) + "\n")
    return 0


@contextmanager
def _narrow(mbit: float) -> Iterator[None]:
    """What this machine sends to the hosts has a limit."""
    rate = ["tbf", "rate", f"{mbit}mbit", "burst", "256kb", "latency", "400ms"]
    subprocess.run(["tc", "qdisc", "replace", "dev", BRIDGE, "root", *rate], check=True)
    try:
        yield
    finally:
        subprocess.run(["tc", "qdisc", "del", "dev", BRIDGE, "root"], check=True)


def _pushed(folder: Path, to: tuple[Host, ...], relay: bool, mb: int) -> float:
    """The seconds of a first push. What is random does not shrink on the way."""
    everywhere(to, f"chmod -R u+w {THERE} 2>/dev/null; rm -rf {THERE}")
    code = folder / "code"
    shutil.rmtree(code, ignore_errors=True)
    code.mkdir()
    for number in range(FILES):
        (code / f"weights-{number}").write_bytes(os.urandom((mb << 20) // FILES))
    lines = [
        'project = "relay"', f"ssh_config = {json.dumps(str(SSH_CONFIG))}",
        "keep_connections_s = 0",
        f'[source]\npath = "code"\nrelay = {str(relay).lower()}',
        '[training]\ncommand = "true"',
        f'[defaults]\nports = [2222, 2223, 2224]\ndirectory = "{THERE}"\nworkers = 1',
        *(f'[hosts.{host.name}]\naddress = "{host.address}"' for host in to),
    ]  # fmt: skip
    (folder / "hosts.toml").write_text("\n".join(lines) + "\n")
    began = time.monotonic()
    subprocess.run([TFDEPLOY, "push"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    wall_s = time.monotonic() - began
    for host in to:
        size = host.does(f"cat {THERE}/relay/releases/*/weights-* | wc -c")
        assert int(size) == (mb << 20) // FILES * FILES, f"{host.name} has {size} bytes"
    return wall_s


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", default="1,4,8,16", help="how many hosts: 1,4,8,16")
    parser.add_argument("--mb", type=int, default=32, help="MiB of the release")
    parser.add_argument("--mbit", type=float, default=100, help="Mbit/s of the way out")
    wanted = parser.parse_args()
    wanted.n = [int(size) for size in wanted.n.split(",")]
    return wanted


if __name__ == "__main__":
    sys.exit(main())
