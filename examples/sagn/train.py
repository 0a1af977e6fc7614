"""SAGN, synchronous accumulated gradient normalisation: each worker trains a window, then all meet.

    worker i, for each batch:   x_i  ←  x_i - η g(x_i),   a_i  ←  a_i + g(x_i)
    all, every λ batches:       w  ←  w - η (a_1 / λ + … + a_n / λ) / n
                                a_i  ←  0,   x_i  ←  w

Between two meetings nobody waits and nothing is sent. A step is a batch: a round of n workers
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
from digits import data

if TYPE_CHECKING:
    import argparse

v1 = tf.compat.v1


def main() -> None:
    given = parse_flags()
    role = cluster.role(given)
    if role.job == "ps":
        cluster.serve(role)
    else:
        train(role, given)


def parse_flags() -> argparse.Namespace:
    parser = cluster.flags(__doc__)
    parser.add_argument("--learning_rate", type=float, default=0.7, help="η")
    parser.add_argument("--window", type=int, default=5, help="λ, in batches")
    return parser.parse_args()


def train(role: cluster.Role, given: argparse.Namespace) -> None:
    examples = data.load("train")
    server = cluster.server(role)
    with tf.Graph().as_default():
        with cluster.on_ps(role):
            copy = replica.Replica(role, examples.side)
            steps = sagn(copy, given)
        hooks = [cluster.Progress(copy.loss)]
        with cluster.open_session(server.target, role, given, hooks) as session:
            replica.train(session, copy, steps, given, examples)


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
