"""ADAG, asynchronous with accumulated gradient normalisation (AGN): push the mean of a window.

    worker, for each batch:   x  ←  x - η g(x),   a  ←  a + g(x)
    worker, every λ batches:  push a / λ to the ps,  a  ←  0,  pull  x  ←  w
    ps, for each push:        w  ←  w - η a / λ

DOWNPOUR pushes the sum of a window, and with many workers the sums make the weights jump. The
mean is as large as one gradient, and points where λ batches lead.

J. Hermans, G. Spanakis, R. Möckel, "Accumulated Gradient Normalization", ACML 2017.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cluster
import replica
import tensorflow as tf

if TYPE_CHECKING:
    import argparse

v1 = tf.compat.v1


def main() -> None:
    parser = cluster.flags(__doc__)
    parser.add_argument("--learning_rate", type=float, default=0.5, help="η")
    parser.add_argument("--window", type=int, default=5, help="λ, in batches")
    replica.run(parser.parse_args(), adag)


def adag(copy: replica.Replica, given: argparse.Namespace) -> replica.Steps:
    accrued = copy.accrued()
    computed = tf.group(copy.descend(given.learning_rate), copy.accrue(accrued))
    with tf.control_dependencies([computed]):
        push = [a.read_value() / given.window for a in accrued]
    update = v1.train.GradientDescentOptimizer(given.learning_rate)
    pushed = update.apply_gradients(zip(push, copy.central, strict=True))
    with tf.control_dependencies([pushed]):
        counted = copy.step.assign_add(given.window)
    with tf.control_dependencies([counted]):
        communicated = tf.group(copy.pull(), replica.forget(accrued))
    return copy.steps(computed, communicated)


if __name__ == "__main__":
    main()
