"""SAGN, synchronous accumulated gradient normalisation: each worker trains a window, then all meet.

    worker i, for each batch:   x_i  ←  x_i - η g(x_i),   a_i  ←  a_i + g(x_i)
    all, every λ batches:       w  ←  w - η (a_1 / λ + … + a_n / λ) / n
                                a_i  ←  0,   x_i  ←  w

Between two meetings no worker waits and nothing is sent. A step is a batch: a round of n workers
counts n λ.

J. Hermans, G. Spanakis, R. Möckel, "Accumulated Gradient Normalization", ACML 2017, has the
asynchronous form, see ../adag.
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

# Accumulators drop gradients of an older round. The tokens ensure that none arrive.
NEVER_LATE = tf.int64.max


def main() -> None:
    parser = cluster.algorithm_flags(
        __doc__, steps="of all workers together: a round of n counts n λ"
    )
    parser.add_argument("--learning_rate", type=float, default=0.7, help="η")
    parser.add_argument("--window", type=int, default=5, help="λ, in batches")
    replica.run(parser.parse_args(), Sagn)


class Sagn:
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
        # At the end of a window all meet: w ← w - η (a_1 / λ + … + a_n / λ) / n
        with tf.control_dependencies([self.compute]):
            means = [a.read_value() / given.window for a in accrued]
        met = self.meet(role, means, rate, given.window)
        # a ← 0, x ← w
        with tf.control_dependencies([met]):
            forgot = [a.assign(tf.zeros(a.shape)) for a in accrued]
            pairs = zip(self.own, self.central, strict=True)
            pulled = [x.assign(w.read_value()) for x, w in pairs]
        with tf.control_dependencies([*forgot, *pulled]):
            self.communicate = step.read_value()

    def meet(
        self, role: cluster.Role, means: list[tf.Tensor], rate: float, batches: int
    ) -> tf.Operation:
        """Push the mean gradients of a window; return the operation that ends this worker's round.

        There is no thread besides the sessions that could keep a program from exiting: the chief
        itself waits for all gradients, applies their mean, and gives each other worker a token to
        continue. If the chief is lost in between, all wait for each other and must be restarted.
        """
        piles, tokens = [pile(w) for w in self.central], queue_of_tokens(role)
        pushed = [p.apply_grad(g, NEVER_LATE) for p, g in zip(piles, means, strict=True)]
        with tf.control_dependencies(pushed):
            if not role.is_chief:
                return tokens.dequeue().op
            taken = [p.take_grad(role.workers) for p in piles]
        descent = v1.train.GradientDescentOptimizer(rate)
        applied = descent.apply_gradients(zip(taken, self.central, strict=True))
        step = v1.train.get_or_create_global_step()
        with tf.control_dependencies([applied]):
            counted = step.assign_add(batches * role.workers)
        with tf.control_dependencies([counted]):
            return tokens.enqueue_many(tf.zeros([role.workers - 1]))


def pile(weight: tf.Variable) -> v1.ConditionalAccumulator:
    """Return the accumulator of a weight, on the same ps, shared by all workers by its name."""
    with v1.device(weight.device):
        return v1.ConditionalAccumulator(
            tf.float32, weight.shape, shared_name=f"pile/{weight.op.name}"
        )


def queue_of_tokens(role: cluster.Role) -> tf.queue.QueueBase:
    with v1.device("/job:ps/task:0" if role.ps else role.device):
        return tf.queue.FIFOQueue(role.workers, tf.float32, shapes=[()], shared_name="tokens")


if __name__ == "__main__":
    main()
