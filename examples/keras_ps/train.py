"""ParameterServerStrategy with `fit` of tf_keras (Keras 2); Keras 3's `fit` fails here."""

from __future__ import annotations

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
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type == "chief":
        train(tf.distribute.ParameterServerStrategy(resolver), given)
    else:
        keras_digits.serve(resolver)


def train(strategy: tf.distribute.ParameterServerStrategy, given: argparse.Namespace) -> None:
    with strategy.scope():
        trained = keras_digits.Trained(given.data_dir)
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        trained.model.compile(trained.optimizer, loss)
    print("weights on", trained.model.weights[0].device, flush=True)
    manager = trained.resume(given.checkpoint_dir)
    # Traced here, run by each worker: a dataset created here could not be sent to a worker.
    batches = tf.keras.utils.experimental.DatasetCreator(
        lambda context: keras_digits.batches(given.batch_size, given.data_dir)
    )
    with keras_digits.events(given.checkpoint_dir).as_default():
        trained.model.fit(batches, **keras_digits.epochs(trained, manager, given))
    print(f"stopped at step {int(trained.step.numpy())}", flush=True)


if __name__ == "__main__":
    main()
