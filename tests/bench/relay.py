"""Push a large release over a slow uplink: to each host, or to one that forwards it."""

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
from bench.machines import HERE, SSH_CONFIG, hosts, run_on_all
from bench.tools import TFDEPLOY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.machines import Host

BRIDGE = "docker0"  # traffic between hosts does not pass its queue
HOST_FOLDER = "/data/relay"
FILES = 4


def main() -> int:
    options = _arguments()
    rows = []
    with tempfile.TemporaryDirectory(prefix="tfb-") as name, _limited_uplink(options.mbit):
        folder = Path(name)
        for n in options.n:
            for relay in (False, True):
                wall_s = _push_s(folder, hosts(n), relay, options.mb)
                alone_s = options.mb * 8.388608 / options.mbit
                rows.append(
                    {"n": n, "relay": relay, "wall_s": round(wall_s, 2),
                     "times_one": round(wall_s / alone_s, 2)}
                )  # fmt: skip
                print(json.dumps(rows[-1]), flush=True)
    report = {"machine": results.machine(), "mb": options.mb, "mbit": options.mbit, "rows": rows}
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / "relay.json").write_text(json.dumps(report, indent=1) + "\n")
    return 0


@contextmanager
def _limited_uplink(mbit: float) -> Iterator[None]:
    """Limit the rate at which this machine sends to the hosts."""
    rate = ["tbf", "rate", f"{mbit}mbit", "burst", "256kb", "latency", "400ms"]
    subprocess.run(["tc", "qdisc", "replace", "dev", BRIDGE, "root", *rate], check=True)
    try:
        yield
    finally:
        subprocess.run(["tc", "qdisc", "del", "dev", BRIDGE, "root"], check=True)


def _push_s(folder: Path, to: tuple[Host, ...], relay: bool, mb: int) -> float:
    """Return the seconds of a first push of random bytes, which cannot be compressed."""
    run_on_all(to, f"chmod -R u+w {HOST_FOLDER} 2>/dev/null; rm -rf {HOST_FOLDER}")
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
        f'[defaults]\nports = [2222, 2223, 2224]\ndirectory = "{HOST_FOLDER}"\nworkers = 1',
        *(f'[hosts.{host.name}]\naddress = "{host.address}"' for host in to),
    ]  # fmt: skip
    (folder / "hosts.toml").write_text("\n".join(lines) + "\n")
    subprocess.run([TFDEPLOY, "trust"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    start_s = time.monotonic()
    subprocess.run([TFDEPLOY, "push"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    wall_s = time.monotonic() - start_s
    for host in to:
        size = host.run(f"cat {HOST_FOLDER}/relay/releases/*/weights-* | wc -c")
        assert int(size) == (mb << 20) // FILES * FILES, f"{host.name} has {size} bytes"
    return wall_s


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", default="1,4,8,16", help="numbers of hosts: 1,4,8,16")
    parser.add_argument("--mb", type=int, default=32, help="size of the release in MiB")
    parser.add_argument("--mbit", type=float, default=100, help="rate of the uplink in Mbit/s")
    options = parser.parse_args()
    options.n = [int(size) for size in options.n.split(",")]
    return options


if __name__ == "__main__":
    sys.exit(main())
