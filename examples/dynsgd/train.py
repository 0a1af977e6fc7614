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
from digits import model

if TYPE_CHECKING:
    import argparse

v1 = tf.compat.v1


def main() -> None:
    parser = cluster.algorithm_flags(__doc__)
    parser.add_argument("--learning_rate", type=float, default=0.2, help="η")
    parser.add_argument("--window", type=int, default=5, help="n, in batches")
    replica.run(parser.parse_args(), DynSgd)


class DynSgd:
    """w and the count t are on the ps; the copy x, the sum a and the count v on this worker.

    Nothing orders the operations of one session's run except tf.control_dependencies.
    """

    def __init__(self, role: cluster.Role, side: int, given: argparse.Namespace) -> None:
        rate, step = given.learning_rate, v1.train.get_or_create_global_step()
        self.images, self.labels = model.placeholders(side)
        self.central = model.weights(side, given.net)
        self.own = replica.copies(role, self.central)
        accrued = replica.zeros(role, self.central, "accrued")
        pushes = v1.get_variable("pushes", [], tf.int64, v1.zeros_initializer(), trainable=False)
        pulled_at = replica.local(role, pushes.read_value(), "pulled_at")
        self.loss = model.loss(model.outputs(self.images, self.own), self.labels)
        gradients = tf.gradients(self.loss, self.own)

        # For each batch: x ← x - η g(x), a ← a + g(x)
        self.compute = tf.group(
            *[x.assign_sub(rate * g) for x, g in zip(self.own, gradients, strict=True)],
            *[a.assign_add(g) for a, g in zip(accrued, gradients, strict=True)],
        )
        # At the end of a window: s = t - v, push a / (s + 1); the ps does w ← w - η a / (s + 1)
        with tf.control_dependencies([self.compute]):
            staleness = pushes.read_value() - pulled_at.read_value()
            share = 1 / tf.cast(staleness + 1, tf.float32)
            push = [share * a.read_value() for a in accrued]
        descent = v1.train.GradientDescentOptimizer(rate)
        pushed = descent.apply_gradients(zip(push, self.central, strict=True))
        with tf.control_dependencies([pushed]):
            counted = [pushes.assign_add(1), step.assign_add(given.window)]
        # v ← t, a ← 0, x ← w. First the count, then the weights: a push in between makes the next
        # one of this worker count less, never more.
        with tf.control_dependencies(counted):
            noted = pulled_at.assign(pushes.read_value())
        with tf.control_dependencies([noted]):
            forgot = [a.assign(tf.zeros(a.shape)) for a in accrued]
            pairs = zip(self.own, self.central, strict=True)
            pulled = [x.assign(w.read_value()) for x, w in pairs]
        with tf.control_dependencies([*forgot, *pulled]):
            self.communicate = step.read_value()
        v1.summary.scalar("staleness", staleness)


if __name__ == "__main__":
    main()
