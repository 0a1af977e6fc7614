"""MultiWorkerMirroredStrategy with `fit` of tf_keras (Keras 2); Keras 3's `fit` fails here."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import keras_digits
import tensorflow as tf

if TYPE_CHECKING:
    import argparse


def main() -> None:
    given = keras_digits.flags(__doc__).parse_args()
    keras_digits.need_keras_2()
    if given.evaluate:
        keras_digits.evaluate(given.evaluate, given.data_dir)
        return
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    is_chief = not strategy.cluster_resolver.task_id  # 0, or None without a cluster
    # A save may need all workers, so all of them save; what the others write is deleted.
    with tempfile.TemporaryDirectory() as scratch:
        train(strategy, given.checkpoint_dir if is_chief else scratch, given)


def train(
    strategy: tf.distribute.MultiWorkerMirroredStrategy, directory: str, given: argparse.Namespace
) -> None:
    with strategy.scope():
        trained = keras_digits.Trained(given.data_dir)
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        trained.model.compile(trained.optimizer, loss)
    print("weights on", trained.model.weights[0].device, flush=True)
    manager = trained.resume(directory)
    trained.take_from_chief(strategy)
    # Each worker creates its own dataset, with its own order of images.
    batches = strategy.distribute_datasets_from_function(
        lambda context: keras_digits.batches(given.batch_size, given.data_dir)
    )
    with keras_digits.events(directory).as_default():
        trained.model.fit(batches, **keras_digits.epochs(trained, manager, given))
    print(f"stopped at step {int(trained.step.numpy())}", flush=True)


if __name__ == "__main__":
    main()
