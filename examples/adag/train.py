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
from digits import model

if TYPE_CHECKING:
    import argparse

v1 = tf.compat.v1


def main() -> None:
    parser = cluster.algorithm_flags(__doc__)
    parser.add_argument("--learning_rate", type=float, default=0.5, help="η")
    parser.add_argument("--window", type=int, default=5, help="λ, in batches")
    replica.run(parser.parse_args(), Adag)


class Adag:
    """w is on the ps; its copy x and the sum a of a window's gradients are on this worker.

    Nothing orders the operations of one session's run except tf.control_dependencies.
    """

    def __init__(self, role: cluster.Role, side: int, given: argparse.Namespace) -> None:
        rate, step = given.learning_rate, v1.train.get_or_create_global_step()
        self.images, self.labels = model.placeholders(side)
        self.central = model.weights(side, given.net)
        self.own = replica.copies(role, self.central)
        accrued = replica.zeros(role, self.central, "accrued")
        self.loss = model.loss(model.outputs(self.images, self.own), self.labels)
        gradients = tf.gradients(self.loss, self.own)

        # For each batch: x ← x - η g(x), a ← a + g(x)
        self.compute = tf.group(
            *[x.assign_sub(rate * g) for x, g in zip(self.own, gradients, strict=True)],
            *[a.assign_add(g) for a, g in zip(accrued, gradients, strict=True)],
        )
        # At the end of a window: push a / λ; the ps does w ← w - η a / λ
        with tf.control_dependencies([self.compute]):
            push = [a.read_value() / given.window for a in accrued]
        descent = v1.train.GradientDescentOptimizer(rate)
        pushed = descent.apply_gradients(zip(push, self.central, strict=True))
        with tf.control_dependencies([pushed]):
            counted = step.assign_add(given.window)
        # a ← 0, x ← w
        with tf.control_dependencies([counted]):
            forgot = [a.assign(tf.zeros(a.shape)) for a in accrued]
            pairs = zip(self.own, self.central, strict=True)
            pulled = [x.assign(w.read_value()) for x, w in pairs]
        with tf.control_dependencies([*forgot, *pulled]):
            self.communicate = step.read_value()


if __name__ == "__main__":
    main()
