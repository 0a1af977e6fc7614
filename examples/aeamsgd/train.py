"""AEAMSGD, elastic averaging with momentum: each worker is connected to a centre by a spring.

    worker, for each batch:   v  ←  δ v - η g(x + δ v),   x  ←  x + v        Nesterov's momentum
    worker, every τ batches:  e  =  α (x - c),   x  ←  x - e,   c  ←  c + e

The momentum is the worker's own: the spring moves x, but not v. α = η ρ and β = p α = 0.9 for p
workers, as in ../aeasgd.

The paper takes the force and the gradient of a batch at the same x; here the gradient comes first.

S. Zhang, A. Choromanska, Y. LeCun, "Deep learning with Elastic Averaging SGD", NIPS 2015 (there
EAMSGD).
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

BETA = 0.9  # β, as in the paper


def main() -> None:
    parser = cluster.algorithm_flags(__doc__)
    parser.add_argument("--learning_rate", type=float, default=0.04, help="η")
    parser.add_argument("--momentum", type=float, default=0.9, help="δ")
    parser.add_argument("--alpha", type=float, help="α = η ρ; by default β / workers with β = 0.9")
    parser.add_argument("--window", type=int, default=5, help="τ, in batches")
    replica.run(parser.parse_args(), Aeamsgd)


def spring(role: cluster.Role, given: argparse.Namespace) -> float:
    """Return α, and print what the paper calls it."""
    alpha = BETA / role.workers if given.alpha is None else given.alpha
    beta, rho = role.workers * alpha, alpha / given.learning_rate
    print(f"α = {alpha:.3g}, β = pα = {beta:.3g}, ρ = α/η = {rho:.3g}", flush=True)
    return alpha


class Aeamsgd:
    """The centre c is on the ps; the position x and the velocity v are this worker's.

    Nothing orders the operations of one session's run except tf.control_dependencies.
    """

    def __init__(self, role: cluster.Role, side: int, given: argparse.Namespace) -> None:
        rate, delta, alpha = given.learning_rate, given.momentum, spring(role, given)
        step = v1.train.get_or_create_global_step()
        self.images, self.labels = model.placeholders(side)
        self.central = model.weights(side, given.net)
        self.own = replica.copies(role, self.central)
        velocity = replica.zeros(role, self.central, "velocity")
        # The gradient where the momentum is about to take the worker: g(x + δ v)
        pairs = zip(self.own, velocity, strict=True)
        ahead = [x.read_value() + delta * v.read_value() for x, v in pairs]
        self.loss = model.loss(model.outputs(self.images, ahead), self.labels)
        gradients = tf.gradients(self.loss, ahead)

        # For each batch: v ← δ v - η g(x + δ v), x ← x + v
        pairs = zip(velocity, gradients, strict=True)
        faster = [delta * v.read_value() - rate * g for v, g in pairs]
        self.compute = tf.group(
            *[v.assign(new) for v, new in zip(velocity, faster, strict=True)],
            *[x.assign_add(new) for x, new in zip(self.own, faster, strict=True)],
        )
        # At the end of a window: e = α (x - c), computed once, before either end moves
        with tf.control_dependencies([self.compute]):
            pairs = zip(self.own, self.central, strict=True)
            forces = [alpha * (x.read_value() - c.read_value()) for x, c in pairs]
        # x ← x - e, c ← c + e
        with tf.control_dependencies(forces):
            own = [x.assign_sub(e) for x, e in zip(self.own, forces, strict=True)]
            centre = [c.assign_add(e) for c, e in zip(self.central, forces, strict=True)]
        with tf.control_dependencies([*own, *centre]):
            counted = step.assign_add(given.window)
        with tf.control_dependencies([counted]):
            self.communicate = step.read_value()


if __name__ == "__main__":
    main()
