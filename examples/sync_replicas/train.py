"""Synchronous training: a step waits for the gradients of every worker, and averages them.

The workers push gradients into accumulators on the ps. A thread of the chief takes their average
out, updates the weights, and puts a token for each worker into a queue; who gets one goes on.
TensorFlow's class for it is known to hang at the start and at the end: traps 1 to 4 below.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import cluster
import tensorflow as tf
from digits import data, model

if TYPE_CHECKING:
    import argparse

v1 = tf.compat.v1


def main() -> None:
    parser = cluster.flags(__doc__.splitlines()[0])
    add = parser.add_argument
    add("--learning_rate", type=float, default=0.003)
    add("--backup_workers", type=int, default=0, help="so many of the slowest are not waited for")
    parser.set_defaults(steps=300)  # Each takes a batch of every worker.
    given = parser.parse_args()
    role = cluster.role(given)
    if role.job == "ps":
        cluster.serve(role)
    with tf.Graph().as_default():
        train(role, given, data.load("train"))


def train(role: cluster.Role, given: argparse.Namespace, examples: data.Examples) -> None:
    server = cluster.server(role)
    with cluster.on_ps(role):
        images, labels = model.placeholders(examples.side)
        loss = model.loss(model.logits(images), labels)
        optimizer = synchronous(v1.train.AdamOptimizer(given.learning_rate), role, given)
        update = optimizer.minimize(loss, global_step=v1.train.get_or_create_global_step())
    v1.summary.scalar("loss", loss)
    if role.is_chief:
        print("weights on", cluster.places(v1.trainable_variables()), flush=True)
    # Trap 1: the queue begins with tokens, and whoever comes first trains alone on all of them.
    # Without any (num_tokens=0) the first step ends when each worker has come: a barrier.
    sync = optimizer.make_session_run_hook(role.is_chief, num_tokens=0)
    hooks = [sync, LeaveTokens(optimizer, role.workers), cluster.Progress(loss)]
    # Trap 2: a worker looks every 30 s (recovery_wait_secs) whether the chief has initialized the
    # variables. open_session looks every second.
    # Trap 3: at the end the chief's thread still waits for gradients, and is given 120 s to stop
    # (stop_grace_period_secs), in vain: only the closing of the session, after that, ends it.
    opened = cluster.open_session(server.target, role, given, hooks, stop_grace_period_secs=1)
    with opened as session:
        batches = data.batches(examples, given.batch_size, seed=role.index)
        while not session.should_stop():
            batch = next(batches)
            session.run(update, {images: batch.images, labels: batch.labels})


def synchronous(
    optimizer: v1.train.Optimizer, role: cluster.Role, given: argparse.Namespace
) -> v1.train.SyncReplicasOptimizer:
    return v1.train.SyncReplicasOptimizer(
        optimizer,
        replicas_to_aggregate=role.workers - given.backup_workers,
        total_num_replicas=role.workers,
    )


class LeaveTokens(v1.train.SessionRunHook):
    """Trap 4: a worker that was quick may have taken another's token, and leave with it.

    The other would wait for it for ever. So whoever leaves puts in a token for each.
    """

    def __init__(self, optimizer: v1.train.SyncReplicasOptimizer, workers: int) -> None:
        self.optimizer, self.workers = optimizer, workers

    def begin(self) -> None:
        self.tokens = self.optimizer.get_init_tokens_op(self.workers)

    def end(self, session: v1.Session) -> None:
        # The chief closes the queue as it leaves, which ends everybody's waiting as well.
        with suppress(tf.errors.CancelledError):
            session.run(self.tokens)


if __name__ == "__main__":
    main()
