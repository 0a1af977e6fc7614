"""AEAMSGD, elastic averaging with momentum: each worker is connected to a centre by a spring.

    worker, for each batch:   v  ←  δ v - η g(x + δ v),   x  ←  x + v        Nesterov's momentum
    worker, every τ batches:  e  =  α (x - c),   x  ←  x - e,   c  ←  c + e

The momentum is the worker's own: the spring moves x, but not v.

The paper takes the force and the gradient of a batch at the same x; here the gradient comes first.

S. Zhang, A. Choromanska, Y. LeCun, "Deep learning with Elastic Averaging SGD", NIPS 2015 (there
EAMSGD).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import cluster
import replica
import tensorflow as tf
from aeasgd.train import elastic

if TYPE_CHECKING:
    import argparse

v1 = tf.compat.v1


def main() -> None:
    parser = cluster.flags(__doc__)
    parser.add_argument("--learning_rate", type=float, default=0.04, help="η")
    parser.add_argument("--momentum", type=float, default=0.9, help="δ")
    parser.add_argument("--alpha", type=float, default=0.45, help="α, the spring; 0.9 / workers")
    parser.add_argument("--window", type=int, default=5, help="τ, in batches")
    given = parser.parse_args()
    replica.run(given, aeamsgd, partial(Rolling, momentum=given.momentum))


class Rolling(replica.Replica):
    """A copy that computes its gradients where its momentum is about to move it."""

    def __init__(self, role: cluster.Role, side: int, momentum: float) -> None:
        self.momentum = momentum
        self.velocity: list[tf.Variable] = []
        super().__init__(role, side)

    def point(self, own: tf.Variable) -> tf.Tensor:
        self.velocity.append(self.local(tf.zeros(own.shape), f"velocity/{own.op.name}"))
        return own.read_value() + self.momentum * self.velocity[-1].read_value()

    def roll(self, rate: float) -> tf.Operation:
        """v ← δ v - η gradient, x ← x + v."""
        pairs = zip(self.velocity, self.gradients, strict=True)
        velocity = [self.momentum * v.read_value() - rate * g for v, g in pairs]
        kept = [v.assign(new) for v, new in zip(self.velocity, velocity, strict=True)]
        moved = [x.assign_add(new) for x, new in zip(self.own, velocity, strict=True)]
        return tf.group(*kept, *moved)


def aeamsgd(copy: Rolling, given: argparse.Namespace) -> replica.Steps:
    computed = copy.roll(given.learning_rate)
    with tf.control_dependencies([computed]):
        communicated = elastic(copy, given)
    return copy.steps(computed, communicated)


if __name__ == "__main__":
    main()
