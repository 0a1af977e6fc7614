"""DynSGD: the staler a push is, the less it counts.

    worker, for each batch:   x  ←  x - η g(x),   a  ←  a + g(x)
    worker, every n batches:  push a and v to the ps,  a  ←  0,  pull  x  ←  w  and  v  ←  t
    ps, for each push:        s  =  t - v,   w  ←  w - η a / (s + 1),   t  ←  t + 1

t counts the pushes to the ps. The staleness s is how many of them others made since this worker
pulled: the weights that its gradients are about are so old.

J. Jiang, B. Cui, C. Zhang, L. Yu, "Heterogeneity-aware Distributed Parameter Servers", SIGMOD 2017.
J. Hermans, "On Scalable Deep Learning and Parallelizing Gradient Descent", 2017, has this form.
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


def main() -> None:
    given = parse_flags()
    role = cluster.role(given)
    if role.job == "ps":
        cluster.serve(role)
    else:
        train(role, given)


def parse_flags() -> argparse.Namespace:
    parser = cluster.flags(__doc__)
    parser.add_argument("--learning_rate", type=float, default=0.2, help="η")
    parser.add_argument("--window", type=int, default=5, help="n, in batches")
    return parser.parse_args()


def train(role: cluster.Role, given: argparse.Namespace) -> None:
    examples = data.load("train")
    server = cluster.server(role)
    with tf.Graph().as_default():
        with cluster.on_ps(role):
            copy = replica.Replica(role, examples.side)
            steps = dynsgd(copy, given)
        hooks = [cluster.Progress(copy.loss)]
        with cluster.open_session(server.target, role, given, hooks) as session:
            replica.train(session, copy, steps, given, examples)


def dynsgd(copy: replica.Replica, given: argparse.Namespace) -> replica.Steps:
    pushes = v1.get_variable("pushes", [], tf.int64, v1.zeros_initializer(), trainable=False)
    pulled_at = copy.local(pushes.read_value(), "pulled_at")
    accrued = copy.accrued()
    computed = tf.group(copy.descend(given.learning_rate), copy.accrue(accrued))
    with tf.control_dependencies([computed]):
        staleness = pushes.read_value() - pulled_at.read_value()
        share = 1 / tf.cast(staleness + 1, tf.float32)
        push = [share * a.read_value() for a in accrued]
    # Pushes of several workers may come at once: locked, none of them is lost.
    update = v1.train.GradientDescentOptimizer(given.learning_rate, use_locking=True)
    pushed = update.apply_gradients(zip(push, copy.central, strict=True))
    with tf.control_dependencies([pushed]):
        counted = tf.group(pushes.assign_add(1), copy.step.assign_add(given.window))
    # First the count, then the weights: what comes between makes a push count less, never more.
    with tf.control_dependencies([counted]):
        noted = pulled_at.assign(pushes.read_value())
    with tf.control_dependencies([noted]):
        communicated = tf.group(copy.pull(), replica.forget(accrued))
    v1.summary.scalar("staleness", staleness)
    return copy.steps(computed, communicated)


if __name__ == "__main__":
    main()
