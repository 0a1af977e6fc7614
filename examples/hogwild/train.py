"""Hogwild!: every worker changes the shared weights at any time, without a lock.

    worker, for each batch:   g  =  g(w),   w  ←  w - η g · min(1, 2 / ‖g‖)

‖g‖ is the norm of the gradient of all weights: a longer one is clipped to 2, which the paper does
not do. The weights may change while they are read, and two changes at the same moment may damage
each other. That costs less than waiting would.

TensorFlow locks a resource variable at each update, whatever use_locking says; so these are the
older reference variables, use_resource=False.

F. Niu, B. Recht, C. Ré, S. J. Wright, "HOGWILD!: A Lock-Free Approach to Parallelizing Stochastic
Gradient Descent", NIPS 2011.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import centre
import cluster
import tensorflow as tf
from digits import data, model

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

v1 = tf.compat.v1
# The largest norm of a gradient; most are below. If the loss is steep, all workers see the same
# steep place and each makes the full step: together they would go too far.
STEEPEST = 2.0


def main() -> None:
    given = parse_flags()
    role = cluster.role(given)
    if role.job == "ps":
        cluster.serve(role)
    else:
        train(role, given)


def parse_flags() -> argparse.Namespace:
    parser = cluster.algorithm_flags(__doc__)
    parser.add_argument("--learning_rate", type=float, default=0.1, help="η")
    return parser.parse_args()


def train(role: cluster.Role, given: argparse.Namespace) -> None:
    examples = data.load("train", given.data_dir)
    server = cluster.server(role)
    with tf.Graph().as_default():
        with cluster.on_ps(role):
            wait = cluster.pause(role, given)
            net = Hogwild(examples.side, given.learning_rate, given.net, wait)
            measured = centre.hooks(role, given, net.central)
        print("weights on", cluster.places(net.central), flush=True)
        hooks = [cluster.Progress(net.loss), *measured]
        with cluster.open_session(server.target, role, given, hooks) as session:
            run(session, net, given, data.batches(examples, given.batch_size, seed=role.index))


class Hogwild:
    """The weights, only on the ps; each worker applies its gradients directly to them."""

    def __init__(
        self, side: int, learning_rate: float, net: str, wait: Callable[[], None] | None = None
    ) -> None:
        self.images, self.labels = model.placeholders(side)
        with v1.variable_scope("", use_resource=False):
            self.central = model.weights(side, net)
        self.loss = model.loss(model.outputs(self.images, self.central), self.labels)
        self.step = v1.train.get_or_create_global_step()  # locked: counts every batch
        descent = v1.train.GradientDescentOptimizer(learning_rate, use_locking=False)
        # g · min(1, 2 / ‖g‖)
        gradients, _ = tf.clip_by_global_norm(tf.gradients(self.loss, self.central), STEEPEST)
        if wait:
            gradients = after(wait, gradients)
        self.updated = descent.apply_gradients(zip(gradients, self.central, strict=True), self.step)
        with tf.control_dependencies([self.updated]):
            self.step_after = self.step.read_value()
        v1.summary.scalar("loss", self.loss)


def after(wait: Callable[[], None], gradients: list[tf.Tensor]) -> list[tf.Tensor]:
    """Return the gradients after a wait: the weights are read before it, and changed after it."""
    with tf.control_dependencies(gradients):
        waited = v1.py_func(wait, [], [])
    with tf.control_dependencies([waited]):
        return [tf.identity(gradient) for gradient in gradients]


def run(
    session: v1.train.MonitoredSession,
    net: Hogwild,
    given: argparse.Namespace,
    batches: Iterator[data.Examples],
) -> None:
    step = 0
    while step < given.steps and not session.should_stop():
        batch = next(batches)
        feed = {net.images: batch.images, net.labels: batch.labels}
        step = session.run(net.step_after, feed)


if __name__ == "__main__":
    main()
