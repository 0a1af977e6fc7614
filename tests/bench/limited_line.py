"""A line of limited rate: a process that forwards ports, in each direction at most at
this rate.

python -m bench.limited_line MB/S PORT=TARGET…
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

from support.ports import ADDRESS, free_ports

CHUNK = 1 << 16
BURST_S = 0.02


@dataclass
class LimitedLine:
    ports: list[int]
    process: subprocess.Popen[bytes]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def start(targets: list[int], rate: float) -> LimitedLine:
    """Forward new ports to these ports of this machine. All share one line of `rate` MB/s."""
    ports = free_ports(len(targets))
    pairs = [f"{port}={target}" for port, target in zip(ports, targets, strict=True)]
    argv = [sys.executable, "-m", "bench.limited_line", str(rate), *pairs]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline()
    return LimitedLine(ports, process)


class Bucket:
    """Bytes that may pass: `rate` per second, and a burst of BURST_S."""

    def __init__(self, rate: float) -> None:
        self._rate, self._lock, self._free_at = rate, threading.Lock(), 0.0

    def take(self, size: int) -> None:
        """Wait until this number of bytes may pass."""
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic() - BURST_S) + size / self._rate
            wait_s = self._free_at - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)


def forward(source: socket.socket, target: socket.socket, bucket: Bucket) -> None:
    try:
        while data := source.recv(CHUNK):
            bucket.take(len(data))
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        target.close()


def serve(listener: socket.socket, target: int, buckets: tuple[Bucket, Bucket]) -> None:
    while True:
        near, _ = listener.accept()
        far = socket.create_connection((ADDRESS, target))
        for each in (near, far):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for line, bucket in zip(((near, far), (far, near)), buckets, strict=True):
            threading.Thread(target=forward, args=(*line, bucket), daemon=True).start()


def main() -> None:
    rate, *pairs = sys.argv[1:]
    buckets = Bucket(float(rate) * 1e6), Bucket(float(rate) * 1e6)
    for pair in pairs:
        port, target = map(int, pair.split("="))
        listener = socket.create_server((ADDRESS, port))
        threading.Thread(target=serve, args=(listener, target, buckets), daemon=True).start()
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
