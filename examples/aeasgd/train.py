"""AEASGD, asynchronous elastic averaging SGD: a spring connects each worker to a common centre.

    worker, for each batch:   x  ←  x - η g(x)
    worker, every τ batches:  e  =  α (x - c),   x  ←  x - e,   c  ←  c + e

The workers may differ from each other, and so explore more than one would. The centre c, on the
ps, is the mean of their positions: it is the result.

The paper takes the force and the gradient of a batch at the same x; here the gradient comes first.

S. Zhang, A. Choromanska, Y. LeCun, "Deep learning with Elastic Averaging SGD", NIPS 2015.
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
    parser.add_argument("--learning_rate", type=float, default=0.3, help="η")
    parser.add_argument("--alpha", type=float, default=0.45, help="α, the spring; 0.9 / workers")
    parser.add_argument("--window", type=int, default=5, help="τ, in batches")
    replica.run(parser.parse_args(), aeasgd)


def aeasgd(copy: replica.Replica, given: argparse.Namespace) -> replica.Steps:
    computed = copy.descend(given.learning_rate)
    with tf.control_dependencies([computed]):
        communicated = elastic(copy, given)
    return copy.steps(computed, communicated)


def elastic(copy: replica.Replica, given: argparse.Namespace) -> tf.Operation:
    """Move both ends of the spring equally: each force is computed once, before either moves."""
    pairs = list(zip(copy.own, copy.central, strict=True))
    forces = [given.alpha * (x.read_value() - c.read_value()) for x, c in pairs]
    with tf.control_dependencies(forces):
        own = [x.assign_sub(e) for (x, _), e in zip(pairs, forces, strict=True)]
        centre = [c.assign_add(e) for (_, c), e in zip(pairs, forces, strict=True)]
    with tf.control_dependencies([*own, *centre]):
        return copy.step.assign_add(given.window).op


if __name__ == "__main__":
    main()
