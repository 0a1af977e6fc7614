"""Asynchronous training under a Supervisor, which came before MonitoredTrainingSession.

It knows no hooks: the loop is the script's own. Beside it, threads of the chief's Supervisor save
checkpoints and measure the speed, by the clock.
"""

from __future__ import annotations

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
    parser.add_argument("--learning_rate", type=float, default=0.003)
    parser.add_argument("--save_secs", type=float, default=2, help="takes --save_steps' place")
    parser.set_defaults(save_steps=None)
    given = parser.parse_args()
    if given.save_steps is not None:
        parser.error("a Supervisor saves by the clock: give --save_secs, not --save_steps")
    role = cluster.role(given)
    if role.job == "ps":
        cluster.serve(role)
    # The Supervisor's threads are outside of any graph, where TensorFlow 2 would compute eagerly.
    v1.disable_eager_execution()
    examples = data.load("train")
    server = cluster.server(role)
    with tf.Graph().as_default():
        with cluster.on_ps(role):
            net = build(examples.side, given.learning_rate)
        supervisor = supervise(role, given, net.step)
        if role.is_chief:
            print("weights on", cluster.places(v1.trainable_variables()), flush=True)
        with supervisor.managed_session(server.target, cluster.config(role)) as session:
            batches = data.batches(examples, given.batch_size, seed=role.index)
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
    """It finalizes the graph: nothing can be added from here on."""
    return v1.train.Supervisor(
        is_chief=role.is_chief,  # It initializes or restores the weights, the others wait for it.
        logdir=given.checkpoint_dir,  # Only the chief writes there.
        global_step=step,
        save_model_secs=given.save_secs,
        save_summaries_secs=1,  # of its own summary, global_step/sec
        summary_op=None,  # Its thread has no batch to feed: the loop hands over the loss itself.
        recovery_wait_secs=1,  # How often the others look whether the chief is done. Default: 30
    )


def train(
    supervisor: v1.train.Supervisor,
    session: v1.Session,
    net: Net,
    batches: Iterator[data.Examples],
    steps: int,
) -> None:
    step, own, told = 0, 0, -1
    # All workers share the global step, so each stops by itself.
    while step < steps and not supervisor.should_stop():
        batch = next(batches)
        _, step, loss, summary = session.run(
            [net.update, net.step, net.loss, net.summary],
            {net.images: batch.images, net.labels: batch.labels},
        )
        own += 1
        if supervisor.is_chief and own % 10 == 1:
            supervisor.summary_computed(session, summary, step)
        if step // 100 > told:
            print(f"step {step} loss {loss:.3f}", flush=True)
            told = step // 100
    print(f"stopped at step {step} after {own} of my own", flush=True)


def save_the_end(supervisor: v1.train.Supervisor, session: v1.Session) -> None:
    """The last steps are still unsaved: its thread saves by the clock."""
    supervisor.request_stop()
    supervisor.coord.join()  # Two threads that save at the same time would mix their files.
    supervisor.saver.save(session, supervisor.save_path, supervisor.global_step)


if __name__ == "__main__":
    main()
