"""Asynchronous training with a Supervisor, the predecessor of MonitoredTrainingSession.

It has no hooks: the script has the loop. Meanwhile threads of the chief's Supervisor save
checkpoints and measure the speed at fixed times.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import cluster
import tensorflow as tf
from digits import data, model

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

v1 = tf.compat.v1


class Net(NamedTuple):
    images: tf.Tensor
    labels: tf.Tensor
    loss: tf.Tensor
    step: tf.Variable
    update: tf.Operation
    summary: tf.Tensor


def main() -> None:
    parser = cluster.flags(__doc__)
    parser.add_argument("--data-dir", type=Path, help=data.FLAG_HELP)
    parser.add_argument("--learning_rate", type=float, default=0.003)
    parser.add_argument("--save_secs", type=float, default=2, help="takes --save_steps' place")
    parser.set_defaults(save_steps=None)
    given = parser.parse_args()
    if given.save_steps is not None:
        parser.error("a Supervisor saves by the clock: give --save_secs, not --save_steps")
    role = cluster.role(given)
    if role.job == "ps":
        cluster.serve(role)
    # The Supervisor's threads run outside any graph, where TensorFlow 2 would compute eagerly.
    v1.disable_eager_execution()
    examples = data.load("train", given.data_dir)
    server = cluster.server(role)
    with tf.Graph().as_default():
        with cluster.on_ps(role):
            net = build(examples.side, given.learning_rate)
        supervisor = supervise(role, given, net.step)
        if role.is_chief:
            print("weights on", cluster.places(v1.trainable_variables()), flush=True)
        with supervisor.managed_session(server.target, cluster.config(role)) as session:
            batches = cluster.batches(examples, role, given)
            train(supervisor, session, net, batches, given.steps)
            if role.is_chief:
                save_the_end(supervisor, session)


def build(side: int, learning_rate: float) -> Net:
    images, labels = model.placeholders(side)
    loss = model.loss(model.logits(images), labels)
    step = v1.train.get_or_create_global_step()
    update = v1.train.AdamOptimizer(learning_rate).minimize(loss, global_step=step)
    return Net(images, labels, loss, step, update, v1.summary.scalar("loss", loss))


def supervise(
    role: cluster.Role, given: argparse.Namespace, step: tf.Variable
) -> v1.train.Supervisor:
    """Create the Supervisor. It finalizes the graph: nothing can be added afterwards."""
    return v1.train.Supervisor(
        is_chief=role.is_chief,  # initializes or restores the weights; the others wait
        logdir=given.checkpoint_dir,  # Only the chief writes there.
        global_step=step,
        save_model_secs=given.save_secs,
        save_summaries_secs=1,  # for its own summary, global_step/sec
        summary_op=None,  # Its thread has no batch to feed: the loop passes the loss.
        recovery_wait_secs=1,  # Seconds between two checks of the others for the chief. Default: 30
    )


def train(
    supervisor: v1.train.Supervisor,
    session: v1.Session,
    net: Net,
    batches: Iterator[data.Examples],
    steps: int,
) -> None:
    step, own, reported = 0, 0, -1
    # All workers share the global step, so each worker stops by itself.
    while step < steps and not supervisor.should_stop():
        batch = next(batches)
        _, step, loss, summary = session.run(
            [net.update, net.step, net.loss, net.summary],
            {net.images: batch.images, net.labels: batch.labels},
        )
        own += 1
        if supervisor.is_chief and own % 10 == 1:
            supervisor.summary_computed(session, summary, step)
        if step // 100 > reported:
            print(f"step {step} loss {loss:.3f}", flush=True)
            reported = step // 100
    print(f"stopped at step {step}, own steps: {own}", flush=True)


def save_the_end(supervisor: v1.train.Supervisor, session: v1.Session) -> None:
    """Save the last steps: the Supervisor's thread saves only at fixed times."""
    supervisor.request_stop()
    supervisor.coord.join()  # Two threads that save at the same time would mix their files.
    supervisor.saver.save(session, supervisor.save_path, supervisor.global_step)


if __name__ == "__main__":
    main()
