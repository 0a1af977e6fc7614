"""DOWNPOUR SGD: a worker trains its own copy, and pushes the sum of a window of gradients.

    worker, for each batch:   x  ←  x - η g(x),   a  ←  a + g(x)
    worker, every n batches:  push a to the ps,  a  ←  0,  pull  x  ←  w
    ps, for each push:        w  ←  w - η a / √(the sum of all a² so far)      Adagrad
                         or   w  ←  w - η a                                    --update=sgd

TensorFlow's Adagrad starts its sum at 0.1, so that a first push of almost nothing stays small.

J. Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cluster
import replica
import tensorflow as tf

if TYPE_CHECKING:
    import argparse

v1 = tf.compat.v1

UPDATES = {
    "adagrad": v1.train.AdagradOptimizer,
    "sgd": v1.train.GradientDescentOptimizer,
}


def main() -> None:
    parser = cluster.flags(__doc__)
    parser.add_argument("--update", choices=UPDATES, default="adagrad", help="on the ps")
    parser.add_argument("--learning_rate", type=float, default=0.05, help="η")
    parser.add_argument("--window", type=int, default=5, help="n, in batches")
    replica.run(parser.parse_args(), downpour)


def downpour(copy: replica.Replica, given: argparse.Namespace) -> replica.Steps:
    accrued = copy.accrued()
    computed = tf.group(copy.descend(given.learning_rate), copy.accrue(accrued))
    with tf.control_dependencies([computed]):
        push = [a.read_value() for a in accrued]
    update = UPDATES[given.update](given.learning_rate)
    pushed = update.apply_gradients(zip(push, copy.central, strict=True))
    with tf.control_dependencies([pushed]):
        counted = copy.step.assign_add(given.window)
    with tf.control_dependencies([counted]):
        communicated = tf.group(copy.pull(), replica.forget(accrued))
    return copy.steps(computed, communicated)


if __name__ == "__main__":
    main()
