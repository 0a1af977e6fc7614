"""Flags, net, images, checkpoints and evaluation, shared by all TensorFlow 2 scripts."""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow as tf
from digits import data

if TYPE_CHECKING:
    from tensorflow.distribute.cluster_resolver import ClusterResolver

# Otherwise it warns about Keras and its checkpoints, which a script cannot change.
tf.get_logger().setLevel("ERROR")

# tf.summary.scalar needs the package tensorboard; tf.summary.write needs only this.
SCALAR = tf.compat.v1.SummaryMetadata(plugin_data={"plugin_name": "scalars"})


def flags(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    add = parser.add_argument
    add("--checkpoint_dir", default="checkpoints")
    add("--steps", type=int, default=600, help="`fit` rounds it up to a multiple of --save_steps")
    add("--batch_size", type=int, default=64, help="of each replica")
    add("--save_steps", type=int, default=200, help="steps between two checkpoints")
    add("--data-dir", type=Path, help=data.FLAG_HELP)
    add("--evaluate", metavar="CHECKPOINT_DIR", help="only measure its newest checkpoint")
    return parser


def need_keras_2() -> None:
    if os.environ.get("TF_USE_LEGACY_KERAS") != "1":
        sys.exit("fit needs tf_keras here, not Keras 3: set TF_USE_LEGACY_KERAS=1")


def serve(resolver: ClusterResolver) -> None:
    """Hold variables, or compute what the chief sends, until this process is stopped."""
    cluster, job, index = resolver.cluster_spec(), resolver.task_type, resolver.task_id
    tf.distribute.Server(cluster, job, index, protocol="grpc").join()


# The net and the data


class Trained:
    """A net, its optimizer and its number of steps. Create it within the strategy's scope."""

    def __init__(self, data_dir: Path | None = None) -> None:
        self.model = model(data.load("train", data_dir).side)
        self.optimizer = tf.keras.optimizers.Adam(0.003)
        self.optimizer.build(self.model.trainable_variables)  # or there is nothing to restore
        # The optimizer counts too, but Keras 3 reads its counter, adds 1 and writes it: if two
        # workers do so at the same moment, only one counts.
        self.step = tf.Variable(0, dtype=tf.int64)

    def take_from_chief(self, strategy: tf.distribute.Strategy) -> None:
        """Send worker 0's values to all workers: only its disk has a checkpoint."""
        variables = [*self.model.variables, *self.optimizer.variables, self.step]

        def sums() -> list[tf.Tensor]:
            """Return sums over all replicas: all but the first add 0, so these are its values."""
            context = tf.distribute.get_replica_context()
            first = context.replica_id_in_sync_group == 0
            return context.all_reduce("SUM", [tf.cast(first, v.dtype) * v for v in variables])

        for variable, value in zip(variables, strategy.run(sums), strict=True):
            variable.assign(strategy.experimental_local_results(value)[0])

    def resume(self, directory: str) -> tf.train.CheckpointManager:
        """Restore the newest checkpoint of a directory, if any; return a manager for the next."""
        parts = {"model": self.model, "optimizer": self.optimizer, "step": self.step}
        checkpoint = tf.train.Checkpoint(**parts)
        # Created here by all workers. Otherwise a worker that restores nothing would create it at
        # its first save within fit, as a variable of all workers, and wait for the others forever.
        checkpoint.save_counter.assign(0)
        manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=3)
        if manager.restore_or_initialize():
            print(f"restored step {self.step.numpy()}", flush=True)
        return manager


def model(side: int = 8) -> tf.keras.Sequential:
    """Return the net of digits/model.py, in Keras, for images of `side` × `side` pixels."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.InputLayer((side, side, 1)),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )


def losses(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    """Return one loss for each image."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=outputs)


def batches(size: int, data_dir: Path | None = None) -> tf.data.Dataset:
    """Return endless random batches of the training images; every worker shuffles by itself."""
    images, labels = data.load("train", data_dir)
    examples = tf.data.Dataset.from_tensor_slices((images[..., None], labels))
    return examples.shuffle(len(labels)).repeat().batch(size).prefetch(2)


# Reports


def events(checkpoint_dir: str) -> tf.summary.SummaryWriter:
    return tf.summary.create_file_writer(f"{checkpoint_dir}/events")


def report(step: int, loss: float) -> None:
    """Print a line, and write a point to the events if there is a default writer."""
    print(f"step {step} loss {loss:.3f}", flush=True)
    tf.summary.write("loss", loss, step, SCALAR)
    tf.summary.flush()


def evaluate(checkpoint_dir: str, data_dir: Path | None = None) -> None:
    """Print the newest checkpoint's accuracy on images that were not used for training."""
    newest = tf.train.latest_checkpoint(checkpoint_dir)
    if newest is None:
        sys.exit(f"{checkpoint_dir} holds no checkpoint: train first")
    tests = data.load("test", data_dir)
    net, step = model(tests.side), tf.Variable(0, dtype=tf.int64)
    restored = tf.train.Checkpoint(model=net, step=step).restore(newest)
    restored.assert_existing_objects_matched().expect_partial()
    right = tf.argmax(net(tests.images[..., None]), 1) == tests.labels
    accuracy = tf.reduce_mean(tf.cast(right, tf.float32))
    print(f"test accuracy {accuracy:.3f} at step {step.numpy()}")


# Arguments of `fit`


def epochs(
    trained: Trained, manager: tf.train.CheckpointManager, given: argparse.Namespace
) -> dict:
    """Return arguments of `fit`: each epoch ends at a checkpoint, finished epochs are left out."""

    def end(epoch: int, logs: dict[str, float]) -> None:
        step = (epoch + 1) * given.save_steps
        report(step, logs["loss"])
        trained.step.assign(step)
        manager.save(checkpoint_number=step)

    return {
        "initial_epoch": int(trained.step.numpy()) // given.save_steps,
        "epochs": math.ceil(given.steps / given.save_steps),
        "steps_per_epoch": given.save_steps,
        "callbacks": [tf.keras.callbacks.LambdaCallback(on_epoch_end=end)],
        "shuffle": False,  # The images are shuffled already.
        "verbose": 0,
    }
