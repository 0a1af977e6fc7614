"""SAGN, synchronous accumulated gradient normalisation: each worker trains a window, then all meet.

    worker i, for each batch:   x_i  ←  x_i - η g(x_i),   a_i  ←  a_i + g(x_i)
    all, every λ batches:       w  ←  w - η (a_1 / λ + … + a_n / λ) / n
                                a_i  ←  0,   x_i  ←  w

Between two meetings no worker waits and nothing is sent. A step is a batch: a round of n workers
counts n λ.

J. Hermans, G. Spanakis, R. Möckel, "Accumulated Gradient Normalization", ACML 2017, has the
asynchronous form, see ../adag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cluster
import replica
import rounds
import tensorflow as tf

if TYPE_CHECKING:
    import argparse

v1 = tf.compat.v1


def main() -> None:
    parser = cluster.flags(__doc__, steps="of all workers together: a round of n counts n λ")
    parser.add_argument("--learning_rate", type=float, default=0.7, help="η")
    parser.add_argument("--window", type=int, default=5, help="λ, in batches")
    replica.run(parser.parse_args(), sagn)


def sagn(copy: replica.Replica, given: argparse.Namespace) -> replica.Steps:
    accrued = copy.accrued()
    computed = tf.group(copy.descend(given.learning_rate), copy.accrue(accrued))
    with tf.control_dependencies([computed]):
        normalised = [a.read_value() / given.window for a in accrued]
    update = v1.train.GradientDescentOptimizer(given.learning_rate)
    met = rounds.meet(copy.role, update, normalised, copy.central, batches=given.window)
    with tf.control_dependencies([met]):
        communicated = tf.group(copy.pull(), replica.forget(accrued))
    return copy.steps(computed, communicated)


if __name__ == "__main__":
    main()
