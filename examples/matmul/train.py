"""Where does a large matrix product run, and how fast? Each device is timed as it should be."""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import tensorflow as tf

# Without this TensorFlow takes the CPU, and says nothing, where it is asked for a GPU and has none.
tf.config.set_soft_device_placement(False)


def main() -> None:
    flags = parse_flags()
    for device in devices(flags.device):
        measure(device, flags.size, flags.repeats)
    print(f"left to itself, TensorFlow takes {tf.zeros([1]).device}", flush=True)


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
        # The first time is another: libraries are loaded, threads begun, memory is allocated.
        first = seconds(left, right)
        times = [seconds(left, right) for _ in range(repeats)]
    middle = statistics.median(times)
    speed = 2 * size**3 / middle / 1e9  # a multiplication and an addition for each of size³ pairs
    print(f"{device} {size} x {size}: {speed:.1f} GFLOP/s", flush=True)
    print(f"  first {first * 1e3:.1f} ms, median of {repeats} {middle * 1e3:.1f} ms", flush=True)
    print(f"  fastest {min(times) * 1e3:.1f} ms, slowest {max(times) * 1e3:.1f} ms", flush=True)


def seconds(left: tf.Tensor, right: tf.Tensor) -> float:
    """How long one product takes, until its result is there."""
    started = time.perf_counter()
    product = left @ right
    # A GPU's call returns before the work is done. One number of the result has to wait for all of
    # it, and takes no time to copy.
    product[-1, -1].numpy()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
