"""DOWNPOUR SGD: a worker trains a copy of its own, and pushes what a window of gradients came to.

    worker, for each batch:   x  ←  x - η g(x),   a  ←  a + g(x)
    worker, every n batches:  push a to the ps,  a  ←  0,  pull  x  ←  w
    ps, for each push:        w  ←  w - η a / √(the sum of all a² so far)      Adagrad
                         or   w  ←  w - η a                                    --update=sgd

J. Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cluster
import replica
import tensorflow as tf
from digits import data

if TYPE_CHECKING:
    import argparse

v1 = tf.compat.v1

# Pushes of several workers may come at once: locked, none of them is lost.
UPDATES = {
    "adagrad": lambda rate: v1.train.AdagradOptimizer(rate, use_locking=True),
    "sgd": lambda rate: v1.train.GradientDescentOptimizer(rate, use_locking=True),
}


def main() -> None:
    given = parse_flags()
    role = cluster.role(given)
    if role.job == "ps":
        cluster.serve(role)
    else:
        train(role, given)


def parse_flags() -> argparse.Namespace:
    parser = cluster.flags(__doc__)
    parser.add_argument("--update", choices=UPDATES, default="adagrad", help="on the ps")
    parser.add_argument("--learning_rate", type=float, default=0.05, help="η")
    parser.add_argument("--window", type=int, default=5, help="n, in batches")
    return parser.parse_args()


def train(role: cluster.Role, given: argparse.Namespace) -> None:
    examples = data.load("train")
    server = cluster.server(role)
    with tf.Graph().as_default():
        with cluster.on_ps(role):
            copy = replica.Replica(role, examples.side)
            steps = downpour(copy, given)
        hooks = [cluster.Progress(copy.loss)]
        with cluster.open_session(server.target, role, given, hooks) as session:
            replica.train(session, copy, steps, given, examples)


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
