"""ParameterServerStrategy: the chief schedules steps, workers compute them, ps hold the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras_digits
import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from tensorflow.distribute.cluster_resolver import ClusterResolver
    from tensorflow.distribute.coordinator import ClusterCoordinator, RemoteValue

AT_ONCE = 50  # Steps that are scheduled before the chief waits for them and reports the loss.


def main() -> None:
    given = keras_digits.flags(__doc__).parse_args()
    if given.evaluate:
        keras_digits.evaluate(given.evaluate, given.data_dir)
        return
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type == "chief":
        train(resolver, given)
    else:
        keras_digits.serve(resolver)


def train(resolver: ClusterResolver, given: argparse.Namespace) -> None:
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        trained = keras_digits.Trained(given.data_dir)
    print("weights on", trained.model.weights[0].value.device, flush=True)
    # Traced here, run by each worker: a dataset created here could not be sent to a worker.
    batches = iter(
        coordinator.create_per_worker_dataset(
            lambda: keras_digits.batches(given.batch_size, given.data_dir)
        )
    )

    @tf.function
    def worker_step(batches: tf.data.Iterator) -> tf.Tensor:
        # Within run; otherwise a Keras 3 optimizer finds no replica to update.
        return strategy.run(replica_step, (trained, *next(batches)))

    def hand_out() -> RemoteValue:
        return coordinator.schedule(worker_step, args=(batches,))

    with keras_digits.events(given.checkpoint_dir).as_default():
        follow(coordinator, hand_out, trained, given)


def replica_step(trained: keras_digits.Trained, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Compute a step on a worker: fetch the weights from the ps, and push the gradients."""
    with tf.GradientTape() as tape:
        outputs = trained.model(images, training=True)
        loss = tf.reduce_mean(keras_digits.losses(labels, outputs))
    weights = trained.model.trainable_variables
    trained.optimizer.apply(tape.gradient(loss, weights), weights)
    trained.step.assign_add(1)
    return loss


def follow(
    coordinator: ClusterCoordinator,
    hand_out: Callable[[], RemoteValue],
    trained: keras_digits.Trained,
    given: argparse.Namespace,
) -> None:
    """Schedule steps on free workers until there are enough."""
    manager = trained.resume(given.checkpoint_dir)
    step = int(trained.step.numpy())
    # Not at multiples: a step that is repeated because its worker died counts twice.
    due = step + given.save_steps
    while step < given.steps:
        losses = [hand_out() for _ in range(min(AT_ONCE, given.steps - step))]
        coordinator.join()
        step = int(trained.step.numpy())
        keras_digits.report(step, np.mean(coordinator.fetch(losses)))
        if step >= min(due, given.steps):
            manager.save(checkpoint_number=step)
            due = step + given.save_steps
    print(f"stopped at step {step}", flush=True)


if __name__ == "__main__":
    main()
