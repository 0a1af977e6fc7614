"""On which device does a large matrix product run, and how fast? Time each device correctly."""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import tensorflow as tf

# Otherwise TensorFlow silently uses the CPU if a script requests a GPU that does not exist.
tf.config.set_soft_device_placement(False)


def main() -> None:
    flags = parse_flags()
    for device in devices(flags.device):
        measure(device, flags.size, flags.repeats)
    print(f"by default TensorFlow uses {tf.zeros([1]).device}", flush=True)


def parse_flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--device", choices=("CPU", "GPU"), help="default: every one that there is")
    add("--size", type=int, default=2000, help="rows and columns of both matrices")
    add("--repeats", type=int, default=15)
    return parser.parse_args()


def devices(kind: str | None) -> list[str]:
    found = [device.name for device in tf.config.list_logical_devices(kind)]
    return found or sys.exit(f"train.py: TensorFlow sees no {kind} here; leave --device out")


def measure(device: str, size: int, repeats: int) -> None:
    with tf.device(device):
        left, right = tf.random.uniform([size, size]), tf.random.uniform([size, size])
        # The first call differs: it loads libraries, starts threads and allocates memory.
        first = seconds(left, right)
        times = [seconds(left, right) for _ in range(repeats)]
    middle = statistics.median(times)
    speed = 2 * size**3 / middle / 1e9  # a multiplication and an addition for each of size³ pairs
    print(f"{device} {size} x {size}: {speed:.1f} GFLOP/s", flush=True)
    print(f"  first {first * 1e3:.1f} ms, median of {repeats} {middle * 1e3:.1f} ms", flush=True)
    print(f"  fastest {min(times) * 1e3:.1f} ms, slowest {max(times) * 1e3:.1f} ms", flush=True)


def seconds(left: tf.Tensor, right: tf.Tensor) -> float:
    """Return the seconds of one product, until its result is available."""
    started = time.perf_counter()
    product = left @ right
    # A call on a GPU returns before the work is done. Reading one number waits for the whole
    # result, and copies almost nothing.
    product[-1, -1].numpy()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
