"""DOWNPOUR SGD: a worker trains its own copy, pushes sums of gradients, and fetches the weights.

    worker, for each batch:         x  ←  x - η g(x),   a  ←  a + g(x)           --local=sgd
                               or   s  ←  s + g²,   x  ←  x - η g / √s           --local=adagrad
    worker, every n_push batches:   push a to the ps,  a  ←  0
    worker, every n_fetch batches:  fetch  x  ←  w
    ps, for each push:              S  ←  S + a²,   w  ←  w - η a / √S           --update=adagrad
                               or   w  ←  w - η a                                --update=sgd

TensorFlow's Adagrad starts its sums at 0.1, so that a first push of almost nothing stays small.

With --push=background a worker computes its next batches while a push is under way, as in the
paper; the next push waits for it. Fetches always block here.

J. Dean et al., "Large Scale Distributed Deep Networks", NIPS 2012.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import cluster
import replica
import tensorflow as tf
from digits import model

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from digits import data

v1 = tf.compat.v1

UPDATES = {
    "adagrad": v1.train.AdagradOptimizer,
    "sgd": v1.train.GradientDescentOptimizer,
}
FIRST_SUM = 0.1  # of the squares, as TensorFlow's Adagrad


def main() -> None:
    parser = cluster.algorithm_flags(__doc__)
    add = parser.add_argument
    add("--update", choices=UPDATES, default="adagrad", help="on the ps")
    add("--local", choices=("sgd", "adagrad"), default="sgd", help="on the worker's copy")
    add("--learning_rate", type=float, default=0.05, help="η")
    add("--n_push", type=int, default=5, help="in batches")
    add("--n_fetch", type=int, default=5, help="in batches")
    add("--push", choices=("blocking", "background"), default="blocking", help="see above")
    given = parser.parse_args()
    given.window = given.n_push  # A report of progress counts this number of batches.
    replica.run(given, Downpour, train)


class Downpour:
    """w and Adagrad's sums are on the ps; the copy x and the sum a are on this worker.

    Nothing orders the operations of one session's run except tf.control_dependencies.
    """

    def __init__(self, role: cluster.Role, side: int, given: argparse.Namespace) -> None:
        step = v1.train.get_or_create_global_step()
        self.images, self.labels = model.placeholders(side)
        self.central = model.weights(side, given.net)
        self.own = replica.copies(role, self.central)
        accrued = replica.zeros(role, self.central, "accrued")
        sent = replica.zeros(role, self.central, "sent")
        self.loss = model.loss(model.outputs(self.images, self.own), self.labels)
        gradients = tf.gradients(self.loss, self.own)

        # For each batch: x ← x - η g(x), or with Adagrad's rates; a ← a + g(x)
        local = sgd if given.local == "sgd" else adagrad
        self.compute = tf.group(
            *local(role, self.own, gradients, given.learning_rate),
            *[a.assign_add(g) for a, g in zip(accrued, gradients, strict=True)],
        )
        # The last batch before a push: what is sent next ← a, a ← 0
        with tf.control_dependencies([self.compute]):
            sums = [a.read_value() for a in accrued]
        with tf.control_dependencies(sums):
            taken = [s.assign(a) for s, a in zip(sent, sums, strict=True)]
            forgot = [a.assign(tf.zeros(a.shape)) for a in accrued]
        self.take = tf.group(*taken, *forgot)
        # Push: the ps updates w
        update = UPDATES[given.update](given.learning_rate)
        push = [s.read_value() for s in sent]
        pushed = update.apply_gradients(zip(push, self.central, strict=True))
        with tf.control_dependencies([pushed]):
            counted = step.assign_add(given.n_push)
        with tf.control_dependencies([counted]):
            self.push = step.read_value()
        # Fetch: x ← w
        pairs = zip(self.own, self.central, strict=True)
        self.fetch = tf.group(*[x.assign(w.read_value()) for x, w in pairs])


def sgd(
    _: cluster.Role, own: list[tf.Variable], gradients: list[tf.Tensor], rate: float
) -> list[tf.Operation]:
    return [x.assign_sub(rate * g) for x, g in zip(own, gradients, strict=True)]


def adagrad(
    role: cluster.Role, own: list[tf.Variable], gradients: list[tf.Tensor], rate: float
) -> list[tf.Operation]:
    """s ← s + g², x ← x - η g / √s, with sums s of this worker."""
    updates = []
    for x, g in zip(own, gradients, strict=True):
        s = replica.local(role, tf.fill(x.shape, FIRST_SUM), f"squares/{x.op.name}")
        updates.append(x.assign_sub(rate * g / tf.sqrt(s.assign_add(g * g))))
    return updates


def train(
    session: v1.train.MonitoredSession,
    net: Downpour,
    given: argparse.Namespace,
    batches: Iterator[data.Examples],
) -> None:
    """Train batches. A thread pushes; at most one push is under way."""
    with ThreadPoolExecutor(1) as courier:
        push: Future[int] = courier.submit(int)  # none yet: step 0
        for number, batch in enumerate(batches, start=1):
            feed = replica.feed(net, batch)
            if number % given.n_push:
                replica.alone(session, net.compute, feed)
            else:
                push.result()
                session.run(net.take, feed)
                push = courier.submit(replica.alone, session, net.push)
                if given.push == "blocking":
                    push.result()
            if number % given.n_fetch == 0:
                replica.alone(session, net.fetch)
            if session.should_stop() or (push.done() and push.result() >= given.steps):
                break


if __name__ == "__main__":
    main()
