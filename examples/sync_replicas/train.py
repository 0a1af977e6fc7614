"""Synchronous training: a step averages the gradients of all workers, or of all but a few.

The workers push gradients into accumulators on the ps. A thread of the chief takes their average
out, updates the weights, and puts a token for each worker into a queue; a worker that gets one
continues.

With --backup=b a step takes the first n - b gradients of n workers: it does not wait for the b
slowest. A gradient that arrives after its step was computed on older weights, and is dropped.

TensorFlow's class for it can hang at the start and at the end: see traps 1 to 4 below.

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

v1 = tf.compat.v1


def main() -> None:
    parser = cluster.algorithm_flags(__doc__, steps="each takes a batch of every worker")
    parser.add_argument("--learning_rate", type=float, default=0.003)
    parser.add_argument("--backup", type=int, default=0, help="workers for which no step waits")
    parser.set_defaults(steps=300)
    given = parser.parse_args()
    role = cluster.role(given)
    if not 0 <= given.backup < role.workers:
        sys.exit(f"--backup={given.backup}, but at least one of {role.workers} workers must count")
    if role.job == "ps":
        cluster.serve(role)
    with tf.Graph().as_default():
        train(role, given, data.load("train"))


def train(role: cluster.Role, given: argparse.Namespace, examples: data.Examples) -> None:
    server = cluster.server(role)
    with cluster.on_ps(role):
        images, labels = model.placeholders(examples.side)
        weights = model.weights(examples.side, given.net)
        loss = model.loss(model.outputs(images, weights), labels)
        optimizer = SyncReplicas(
            v1.train.AdamOptimizer(given.learning_rate),
            replicas_to_aggregate=role.workers - given.backup,
            total_num_replicas=role.workers,
        )
        update = optimizer.minimize(loss, global_step=v1.train.get_or_create_global_step())
        measured = centre.hooks(role, given, weights)
    v1.summary.scalar("loss", loss)
    if role.is_chief:
        print("weights on", cluster.places(weights), flush=True)
    # Trap 1: the queue starts with tokens, and the first worker trains alone with all of them.
    # Without any (num_tokens=0) the first step ends when all workers have arrived: a barrier.
    sync = optimizer.make_session_run_hook(role.is_chief, num_tokens=0)
    hooks = [sync, cluster.Progress(loss), *measured]
    # Trap 2: a worker checks every 30 s (recovery_wait_secs) whether the chief has initialized the
    # variables. open_session checks every second.
    # Trap 3: at the end the chief's thread still waits for gradients. It gets 120 s to stop
    # (stop_grace_period_secs) and does not: only closing the session afterwards ends it.
    # Trap 4, also there: a worker that counts its own steps waits for a token that no worker will
    # add when another has stopped. open_session stops at the global step, which all reach with
    # the same token: each finds one in the queue, and none needs another. A backup worker that is
    # late finds the tokens of the steps that it missed.
    opened = cluster.open_session(server.target, role, given, hooks, stop_grace_period_secs=1)
    with opened as session:
        batches = cluster.batches(examples, role, given)
        while not session.should_stop():
            batch = next(batches)
            session.run(update, {images: batch.images, labels: batch.labels})


class SyncReplicas(v1.train.SyncReplicasOptimizer):
    """Ends the chief's thread when its session closes, without an error or a traceback."""

    def get_chief_queue_runner(self) -> v1.train.QueueRunner:
        made = super().get_chief_queue_runner()
        ends = (tf.errors.OutOfRangeError, tf.errors.CancelledError)
        return v1.train.QueueRunner(made.queue, made.enqueue_ops, queue_closed_exception_types=ends)


if __name__ == "__main__":
    main()
