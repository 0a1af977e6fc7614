"""MirroredStrategy: one process, a copy of the weights on each GPU, and Keras 3's own `fit`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras_digits
import tensorflow as tf

if TYPE_CHECKING:
    import argparse


def main() -> None:
    given = keras_digits.flags(__doc__).parse_args()
    if given.evaluate:
        keras_digits.evaluate(given.evaluate, given.data_dir)
    else:
        train(tf.distribute.MirroredStrategy(devices()), given)


def devices() -> list[str] | None:
    """Return all GPUs that the process sees, or two logical CPU devices if it sees none."""
    if tf.config.list_physical_devices("GPU"):
        return None
    [cpu] = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return ["CPU:0", "CPU:1"]


def train(strategy: tf.distribute.MirroredStrategy, given: argparse.Namespace) -> None:
    with strategy.scope():
        trained = keras_digits.Trained(given.data_dir)
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        trained.model.compile(trained.optimizer, loss)
    for copy in strategy.experimental_local_results(trained.model.weights[0].value):
        print("weights on", copy.device, flush=True)
    manager = trained.resume(given.checkpoint_dir)
    # fit takes the batch of all replicas, and gives each replica its part.
    batches = keras_digits.batches(given.batch_size * strategy.num_replicas_in_sync, given.data_dir)
    with keras_digits.events(given.checkpoint_dir).as_default():
        trained.model.fit(batches, **keras_digits.epochs(trained, manager, given))
    print(f"stopped at step {int(trained.step.numpy())}", flush=True)


if __name__ == "__main__":
    main()
