"""What the scripts that save large models share: values, and what a phase costs in memory."""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

MB = 1 << 20
# A row is 1 KiB. One variable has a first axis that can't be cut, one has no whole number of rows.
SHAPES = [[4 * 1024, 256]] * 16 + [[24 * 1024, 256], [1, 2 * MB], [2 * MB + 3]]
TABLE = 3 * MB  # numbers, in two partitions: each is divided further
MODEL = sum(4 * int(np.prod(shape)) for shape in SHAPES)


def piece(size):
    """Let pieces have this size, which is much smaller than the default, if there are any."""
    if "tfdeploy_pieces" in sys.modules:
        sys.modules["tfdeploy_pieces"].PIECE = size


def differ(module, *functions):
    """Let functions of a module of tfdeploy fail, as with another version of TensorFlow."""

    def fail(*_):
        raise AttributeError("another TensorFlow")

    for name in functions:
        setattr(sys.modules[module], name, fail)


def value(index):
    """Return a value that differs in every place and for every variable."""
    count = int(np.prod(SHAPES[index]))
    return tf.reshape(tf.cast(tf.range(count) + index, tf.float32), SHAPES[index])


def expected(index):
    count = int(np.prod(SHAPES[index]))
    return (np.arange(count) + index).astype(np.float32).reshape(SHAPES[index])


def measure(what, work):
    """Print by how many percent of the model's size this process grew at most."""
    Path("/proc/self/clear_refs").write_text("5")
    before = _kilobytes("VmRSS")
    work()
    print(what, "grew by", round(100 * 1024 * (_kilobytes("VmHWM") - before) / MODEL), flush=True)


def _kilobytes(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":"))
