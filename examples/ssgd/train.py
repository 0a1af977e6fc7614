"""Synchronous SGD: all workers compute on the same weights, and the mean of their gradients counts.

    worker i, in each round:  g_i  =  g(w) on its own batch
    all, at once:             w  ←  w - (η_1 g_1 + … + η_n g_n) / n

With one rate for all it is SGD with a batch n times as large. --learning_rates=0.3,0.1 gives each
worker its own rate. A step is a batch: a round of n workers counts n.

J. Chen, X. Pan, R. Monga, S. Bengio, R. Jozefowicz, "Revisiting Distributed Synchronous SGD", 2016.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import centre
import cluster
import tensorflow as tf
from digits import data, model

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

v1 = tf.compat.v1

# Accumulators drop gradients of an older round. The tokens ensure that none arrive.
NEVER_LATE = tf.int64.max


def main() -> None:
    given = parse_flags()
    role = cluster.role(given)
    if role.job == "ps":
        cluster.serve(role)
    else:
        train(role, given)


def parse_flags() -> argparse.Namespace:
    parser = cluster.algorithm_flags(
        __doc__, steps="of all workers together: a round of n counts n"
    )
    parser.add_argument("--learning_rates", default="0.3", help="one for all, or one a worker")
    return parser.parse_args()


def train(role: cluster.Role, given: argparse.Namespace) -> None:
    examples, rate = data.load("train"), own_rate(given.learning_rates, role)
    server = cluster.server(role)
    with tf.Graph().as_default():
        with cluster.on_ps(role):
            net = Synchronous(role, examples.side, rate, given.net)
            measured = centre.hooks(role, given, net.central)
        print("weights on", cluster.places(net.central), flush=True)
        hooks = [cluster.Progress(net.loss), *measured]
        with cluster.open_session(server.target, role, given, hooks) as session:
            run(session, net, given, cluster.batches(examples, role, given))


def own_rate(learning_rates: str, role: cluster.Role) -> float:
    rates = [float(rate) for rate in learning_rates.split(",")]
    if len(rates) == 1:
        return rates[0]
    if len(rates) != role.workers:
        sys.exit(
            f"--learning_rates={learning_rates} are {len(rates)} rates for {role.workers} workers: "
            "give one for each, or one for all"
        )
    return rates[role.index]


class Synchronous:
    """The weights, on the ps; they change only between two rounds."""

    def __init__(self, role: cluster.Role, side: int, rate: float, net: str) -> None:
        self.images, self.labels = model.placeholders(side)
        self.central = model.weights(side, net)
        self.loss = model.loss(model.outputs(self.images, self.central), self.labels)
        met = self.meet(role, [rate * g for g in tf.gradients(self.loss, self.central)])
        with tf.control_dependencies([met]):
            self.step_after = v1.train.get_or_create_global_step().read_value()
        v1.summary.scalar("loss", self.loss)

    def meet(self, role: cluster.Role, gradients: list[tf.Tensor]) -> tf.Operation:
        """Push the gradients of a batch; return the operation that ends this worker's round.

        There is no thread besides the sessions that could keep a program from exiting: the chief
        itself waits for all gradients, applies their mean, and gives each other worker a token to
        continue. If the chief is lost in between, all wait for each other and must be restarted.
        """
        piles, tokens = [pile(w) for w in self.central], queue_of_tokens(role)
        pushed = [p.apply_grad(g, NEVER_LATE) for p, g in zip(piles, gradients, strict=True)]
        with tf.control_dependencies(pushed):
            if not role.is_chief:
                return tokens.dequeue().op
            taken = [p.take_grad(role.workers) for p in piles]
        descent = v1.train.GradientDescentOptimizer(1.0)  # The gradients already contain the rates.
        applied = descent.apply_gradients(zip(taken, self.central, strict=True))
        step = v1.train.get_or_create_global_step()
        with tf.control_dependencies([applied]):
            counted = step.assign_add(role.workers)
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


def run(
    session: v1.train.MonitoredSession,
    net: Synchronous,
    given: argparse.Namespace,
    batches: Iterator[data.Examples],
) -> None:
    step = 0
    # The step at the end of a round is the same for all, so all stop after the same round.
    while step < given.steps:
        batch = next(batches)
        feed = {net.images: batch.images, net.labels: batch.labels}
        step = session.run(net.step_after, feed)


if __name__ == "__main__":
    main()
