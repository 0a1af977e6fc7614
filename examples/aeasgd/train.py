"""AEASGD, asynchronous elastic averaging SGD: a spring connects each worker to a common centre.

    worker, for each batch:   x  ←  x - η g(x)
    worker, every τ batches:  e  =  α (x - c),   x  ←  x - e,   c  ←  c + e

The workers may differ from each other, and so explore more than one would. The centre c, on the
ps, is the moving mean of their positions: it is the result.

The paper's names: ρ is the strength of the spring, α = η ρ the part of the distance that one
exchange covers, and β = p α what p workers cover together. It keeps β at 0.9, so α = 0.9 / p.

The paper takes the force and the gradient of a batch at the same x; here the gradient comes first.

S. Zhang, A. Choromanska, Y. LeCun, "Deep learning with Elastic Averaging SGD", NIPS 2015.
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
    parser.add_argument("--learning_rate", type=float, default=0.3, help="η")
    parser.add_argument("--alpha", type=float, help="α = η ρ; by default β / workers with β = 0.9")
    parser.add_argument("--window", type=int, default=5, help="τ, in batches")
    replica.run(parser.parse_args(), Aeasgd)


def spring(role: cluster.Role, given: argparse.Namespace) -> float:
    """Return α, and print what the paper calls it."""
    alpha = BETA / role.workers if given.alpha is None else given.alpha
    beta, rho = role.workers * alpha, alpha / given.learning_rate
    print(f"α = {alpha:.3g}, β = pα = {beta:.3g}, ρ = α/η = {rho:.3g}", flush=True)
    return alpha


class Aeasgd:
    """The centre c is on the ps; the position x is this worker's.

    Nothing orders the operations of one session's run except tf.control_dependencies.
    """

    def __init__(self, role: cluster.Role, side: int, given: argparse.Namespace) -> None:
        rate, alpha = given.learning_rate, spring(role, given)
        step = v1.train.get_or_create_global_step()
        self.images, self.labels = model.placeholders(side)
        self.central = model.weights(side, given.net)
        self.own = replica.copies(role, self.central)
        self.loss = model.loss(model.outputs(self.images, self.own), self.labels)
        gradients = tf.gradients(self.loss, self.own)

        # For each batch: x ← x - η g(x)
        descents = [x.assign_sub(rate * g) for x, g in zip(self.own, gradients, strict=True)]
        self.compute = tf.group(*descents)
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
