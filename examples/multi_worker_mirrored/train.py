"""MultiWorkerMirroredStrategy: every worker has all weights; each step sums their gradients."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import keras_digits
import tensorflow as tf

if TYPE_CHECKING:
    import argparse

TOLD = 20  # The number of steps between two lines.


def main() -> None:
    given = keras_digits.flags(__doc__).parse_args()
    if given.evaluate:
        keras_digits.evaluate(given.evaluate, given.data_dir)
        return
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    is_chief = not strategy.cluster_resolver.task_id  # 0, or None without a cluster
    # A save may need all workers, so all of them save; what the others write is deleted.
    with tempfile.TemporaryDirectory() as scratch:
        train(strategy, given.checkpoint_dir if is_chief else scratch, given)


def train(strategy: tf.distribute.Strategy, directory: str, given: argparse.Namespace) -> None:
    with strategy.scope():
        trained = keras_digits.Trained(given.data_dir)
    print("weights on", trained.model.weights[0].value.device, flush=True)
    manager = trained.resume(directory)
    trained.take_from_chief(strategy)
    # Each worker creates its own dataset, with its own order of images.
    batches = iter(
        strategy.distribute_datasets_from_function(
            lambda context: keras_digits.batches(given.batch_size, given.data_dir)
        )
    )

    @tf.function
    def step_of_all() -> tf.Tensor:
        losses = strategy.run(replica_step, (trained, *next(batches)))
        return strategy.reduce("SUM", losses, axis=None)

    with keras_digits.events(directory).as_default():
        for step in range(int(trained.step.numpy()) + 1, given.steps + 1):
            loss = step_of_all()
            if step % TOLD == 0:
                keras_digits.report(step, loss)
            if step % given.save_steps == 0 or step == given.steps:
                manager.save(checkpoint_number=step)
    print(f"stopped at step {given.steps}", flush=True)


def replica_step(trained: keras_digits.Trained, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Compute one replica's part: its own images, all gradients, the same update on all."""
    with tf.GradientTape() as tape:
        outputs = trained.model(images, training=True)
        # Divided by the images of all replicas, because the optimizer sums their gradients.
        loss = tf.nn.compute_average_loss(keras_digits.losses(labels, outputs))
    weights = trained.model.trainable_variables
    trained.optimizer.apply(tape.gradient(loss, weights), weights)
    trained.step.assign_add(1)
    return loss


if __name__ == "__main__":
    main()
