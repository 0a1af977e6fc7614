"""MultiWorkerMirroredStrategy with `fit`, which Keras 3 can't and tf_keras, its Keras 2, can."""

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
        keras_digits.evaluate(given.evaluate)
        return
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    is_chief = not strategy.cluster_resolver.task_id  # 0, or None where there is no cluster
    # A save may have to ask all workers, so all of them save; what the others write is thrown away.
    with tempfile.TemporaryDirectory() as scratch:
        train(strategy, given.checkpoint_dir if is_chief else scratch, given)


def train(
    strategy: tf.distribute.MultiWorkerMirroredStrategy, directory: str, given: argparse.Namespace
) -> None:
    with strategy.scope():
        trained = keras_digits.Trained()
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        trained.model.compile(trained.optimizer, loss)
    print("weights on", trained.model.weights[0].device, flush=True)
    kept = trained.resume(directory)
    trained.take_from_chief(strategy)
    # Each worker makes a dataset of its own, and draws its own images.
    batches = strategy.distribute_datasets_from_function(
        lambda context: keras_digits.batches(given.batch_size)
    )
    with keras_digits.events(directory).as_default():
        trained.model.fit(batches, **keras_digits.epochs(trained, kept, given))
    print(f"stopped at step {int(trained.step.numpy())}", flush=True)


if __name__ == "__main__":
    main()
