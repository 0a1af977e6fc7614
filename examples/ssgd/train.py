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

import cluster
import rounds
import tensorflow as tf
from digits import data, model

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

v1 = tf.compat.v1


def main() -> None:
    given = parse_flags()
    role = cluster.role(given)
    if role.job == "ps":
        cluster.serve(role)
    else:
        train(role, given)


def parse_flags() -> argparse.Namespace:
    parser = cluster.flags(__doc__, steps="of all workers together: a round of n counts n")
    parser.add_argument("--learning_rates", default="0.3", help="one for all, or one a worker")
    return parser.parse_args()


def train(role: cluster.Role, given: argparse.Namespace) -> None:
    examples, rate = data.load("train"), own_rate(given.learning_rates, role)
    server = cluster.server(role)
    with tf.Graph().as_default():
        with cluster.on_ps(role):
            net = Synchronous(role, examples.side, rate)
        print("weights on", cluster.places(net.weights), flush=True)
        hooks = [cluster.Progress(net.loss)]
        with cluster.open_session(server.target, role, given, hooks) as session:
            run(session, net, given, data.batches(examples, given.batch_size, seed=role.index))


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

    def __init__(self, role: cluster.Role, side: int, rate: float) -> None:
        self.images, self.labels = model.placeholders(side)
        self.loss = model.loss(model.logits(self.images), self.labels)
        self.weights = v1.trainable_variables()
        gradients = [rate * g for g in tf.gradients(self.loss, self.weights)]
        descent = v1.train.GradientDescentOptimizer(1.0)  # The gradients already contain the rates.
        met = rounds.meet(role, descent, gradients, self.weights, batches=1)
        with tf.control_dependencies([met]):
            self.step_after = v1.train.get_or_create_global_step().read_value()
        v1.summary.scalar("loss", self.loss)


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
