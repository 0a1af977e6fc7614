"""What TensorFlow 2 scripts do around their own ideas: flags, net, images, checkpoints, score."""

from __future__ import annotations

import argparse
import math
import os
import sys
from typing import TYPE_CHECKING

import tensorflow as tf
from digits import data

if TYPE_CHECKING:
    from tensorflow.distribute.cluster_resolver import ClusterResolver

# Else it warns of what Keras and its own checkpoints do, and a script can't change.
tf.get_logger().setLevel("ERROR")

# tf.summary.scalar needs TensorBoard's package, tf.summary.write nothing but this.
SCALAR = tf.compat.v1.SummaryMetadata(plugin_data={"plugin_name": "scalars"})


def flags(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    add = parser.add_argument
    add("--checkpoint_dir", default="checkpoints")
    add("--steps", type=int, default=600, help="`fit` rounds it up to a multiple of --save_steps")
    add("--batch_size", type=int, default=64, help="of each replica")
    add("--save_steps", type=int, default=200, help="a checkpoint after every so many steps")
    add("--evaluate", metavar="CHECKPOINT_DIR", help="measure its newest checkpoint, and no more")
    return parser


def need_keras_2() -> None:
    if os.environ.get("TF_USE_LEGACY_KERAS") != "1":
        sys.exit("fit needs tf_keras here, not Keras 3: set TF_USE_LEGACY_KERAS=1")


def serve(resolver: ClusterResolver) -> None:
    """Hold variables, or compute what the chief sends, until somebody ends this process."""
    cluster, job, index = resolver.cluster_spec(), resolver.task_type, resolver.task_id
    tf.distribute.Server(cluster, job, index, protocol="grpc").join()


# What is trained, and on what


class Trained:
    """A net, its optimizer, and how many steps it took. Make it within the strategy's scope."""

    def __init__(self) -> None:
        self.model = model()
        self.optimizer = tf.keras.optimizers.Adam(0.003)
        self.optimizer.build(self.model.trainable_variables)  # Else there is nothing to restore.
        # The optimizer counts as well, but Keras 3 reads its counter, adds 1 and writes it: of two
        # workers that do so at the same moment only one counts.
        self.step = tf.Variable(0, dtype=tf.int64)

    def take_from_chief(self, strategy: tf.distribute.Strategy) -> None:
        """Give all workers what worker 0 has, on whose disk alone there is a checkpoint."""
        variables = [*self.model.variables, *self.optimizer.variables, self.step]

        def sums() -> list[tf.Tensor]:
            """Over all replicas; all but the first add nothing, so it is the first one's value."""
            context = tf.distribute.get_replica_context()
            first = context.replica_id_in_sync_group == 0
            return context.all_reduce("SUM", [tf.cast(first, v.dtype) * v for v in variables])

        for variable, value in zip(variables, strategy.run(sums), strict=True):
            variable.assign(strategy.experimental_local_results(value)[0])

    def resume(self, directory: str) -> tf.train.CheckpointManager:
        """Begin with the newest checkpoint of a directory if it has one, and keep the next ones."""
        parts = {"model": self.model, "optimizer": self.optimizer, "step": self.step}
        checkpoint = tf.train.Checkpoint(**parts)
        # Made here, by all alike: a worker that restores nothing would make it at its first save,
        # which lies within fit, as a variable of all workers, and wait for the others in vain.
        checkpoint.save_counter.assign(0)
        kept = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=3)
        if kept.restore_or_initialize():
            print(f"restored step {self.step.numpy()}", flush=True)
        return kept


def model() -> tf.keras.Sequential:
    """The net of digits/model.py, in Keras."""
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            layers.InputLayer((8, 8, 1)),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )


def losses(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    """One for each image."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=outputs)


def batches(size: int) -> tf.data.Dataset:
    """Random batches of the training images, without end; every worker shuffles for itself."""
    images, labels = data.load("train")
    examples = tf.data.Dataset.from_tensor_slices((images[..., None], labels))
    return examples.shuffle(len(labels)).repeat().batch(size).prefetch(2)


# What it tells


def events(checkpoint_dir: str) -> tf.summary.SummaryWriter:
    return tf.summary.create_file_writer(f"{checkpoint_dir}/events")


def report(step: int, loss: float) -> None:
    """A line for people, and a point in the curve if there is a default writer of events."""
    print(f"step {step} loss {loss:.3f}", flush=True)
    tf.summary.write("loss", loss, step, SCALAR)
    tf.summary.flush()


def evaluate(checkpoint_dir: str) -> None:
    """Say what the newest checkpoint comes to on images that no worker has seen."""
    newest = tf.train.latest_checkpoint(checkpoint_dir)
    if newest is None:
        sys.exit(f"{checkpoint_dir} holds no checkpoint: train first")
    net, step = model(), tf.Variable(0, dtype=tf.int64)
    restored = tf.train.Checkpoint(model=net, step=step).restore(newest)
    restored.assert_existing_objects_matched().expect_partial()
    tests = data.load("test")
    right = tf.argmax(net(tests.images[..., None]), 1) == tests.labels
    accuracy = tf.reduce_mean(tf.cast(right, tf.float32))
    print(f"test accuracy {accuracy:.3f} at step {step.numpy()}")


# What `fit` is told, by all that use it


def epochs(trained: Trained, kept: tf.train.CheckpointManager, given: argparse.Namespace) -> dict:
    """Epochs that are as long as the way to the next checkpoint, without those already done."""

    def end(epoch: int, logs: dict[str, float]) -> None:
        step = (epoch + 1) * given.save_steps
        report(step, logs["loss"])
        trained.step.assign(step)
        kept.save(checkpoint_number=step)

    return {
        "initial_epoch": int(trained.step.numpy()) // given.save_steps,
        "epochs": math.ceil(given.steps / given.save_steps),
        "steps_per_epoch": given.save_steps,
        "callbacks": [tf.keras.callbacks.LambdaCallback(on_epoch_end=end)],
        "shuffle": False,  # The images come shuffled.
        "verbose": 0,
    }
