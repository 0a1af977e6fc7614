"""DynSGD: the older the weights of a push, the less it counts.

    worker, for each batch:   x  ←  x - η g(x),   a  ←  a + g(x)
    worker, every n batches:  s  =  t - v,   push a / (s + 1),   a  ←  0,   pull  x  ←  w,  v  ←  t
    ps, for each push:        w  ←  w - η a / (s + 1),   t  ←  t + 1

t, on the ps, counts the pushes. The staleness s is the number of pushes of other workers since
this worker pulled: the age of the weights of its gradients. The worker itself reads t, and scales
what it pushes.

J. Jiang, B. Cui, C. Zhang, L. Yu, "Heterogeneity-aware Distributed Parameter Servers", SIGMOD 2017.
J. Hermans, "On Scalable Deep Learning and Parallelizing Gradient Descent", 2017, has this form.
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
    parser.add_argument("--learning_rate", type=float, default=0.2, help="η")
    parser.add_argument("--window", type=int, default=5, help="n, in batches")
    replica.run(parser.parse_args(), dynsgd)


def dynsgd(copy: replica.Replica, given: argparse.Namespace) -> replica.Steps:
    pushes = v1.get_variable("pushes", [], tf.int64, v1.zeros_initializer(), trainable=False)
    pulled_at = copy.local(pushes.read_value(), "pulled_at")
    accrued = copy.accrued()
    computed = tf.group(copy.descend(given.learning_rate), copy.accrue(accrued))
    with tf.control_dependencies([computed]):
        staleness = pushes.read_value() - pulled_at.read_value()
        share = 1 / tf.cast(staleness + 1, tf.float32)
        push = [share * a.read_value() for a in accrued]
    update = v1.train.GradientDescentOptimizer(given.learning_rate)
    pushed = update.apply_gradients(zip(push, copy.central, strict=True))
    with tf.control_dependencies([pushed]):
        counted = tf.group(pushes.assign_add(1), copy.step.assign_add(given.window))
    # First the count, then the weights: a push in between makes this one count less, never more.
    with tf.control_dependencies([counted]):
        noted = pulled_at.assign(pushes.read_value())
    with tf.control_dependencies([noted]):
        communicated = tf.group(copy.pull(), replica.forget(accrued))
    v1.summary.scalar("staleness", staleness)
    return copy.steps(computed, communicated)


if __name__ == "__main__":
    main()
