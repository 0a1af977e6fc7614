"""Input with tf.data: each worker reads its own part, in parallel, ahead, and onto its device."""

from __future__ import annotations

import statistics
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import cluster
import tensorflow as tf
from digits import data, model

if TYPE_CHECKING:
    import argparse

    import numpy as np

v1 = tf.compat.v1
# Of the comparison:
SECONDS_TO_READ = 0.01  # for each image, as from a slow disk
SECONDS_TO_TRAIN = 0.02  # for each batch


def main() -> None:
    parser = cluster.flags(__doc__)
    add = parser.add_argument
    add("--data-dir", type=Path, help=data.FLAG_HELP)
    add("--learning_rate", type=float, default=0.003)
    parser.set_defaults(steps=300)
    given = parser.parse_args()
    role = cluster.role(given)
    if role.job == "ps":
        cluster.serve(role)
        return
    examples = data.load("train", given.data_dir)
    if role.is_chief:
        compare(examples)
    train(role, given, examples)


# The pipeline


def shard(examples: data.Examples, workers: int, index: int) -> tf.data.Dataset:
    """Return every `workers`-th image: first of all, so that nothing is read in vain."""
    return tf.data.Dataset.from_tensor_slices(tuple(examples)).shard(workers, index)


def vary(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the image a little lighter or darker, differently each time."""
    return image * tf.random.uniform([], 0.8, 1.2), label


def batches(part: tf.data.Dataset, size: int, device: str) -> tf.data.Dataset:
    """Return endless batches, made by several threads while the device still computes."""
    return (
        part.shuffle(2000)  # before batches are made, and with room for the whole part
        .repeat()
        .map(vary, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(size, drop_remainder=True)
        .prefetch(2)  # batches in this machine's memory
        .apply(tf.data.experimental.prefetch_to_device(device, 1))  # and one on the device: last
    )


# How much each part of it gains


def compare(examples: data.Examples) -> None:
    part = shard(examples, 1, 0).repeat()
    parallel = part.map(slowly, num_parallel_calls=16).batch(16)
    for name, pipeline in {
        "one image after the other": part.map(slowly).batch(16),
        "16 images at a time": parallel,
        "and while the last batch trains": parallel.prefetch(2),
    }.items():
        print(f"{name}: {milliseconds(pipeline):.0f} ms for a step", flush=True)


def slowly(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the image as late as a slow disk would."""

    def read(pixels: np.ndarray) -> np.ndarray:
        time.sleep(SECONDS_TO_READ)
        return pixels

    return tf.ensure_shape(tf.numpy_function(read, [image], tf.float32), image.shape), label


def milliseconds(pipeline: tf.data.Dataset, steps: int = 10) -> float:
    batch = iter(pipeline)
    next(batch)  # The first one also builds the pipeline.
    times = [time.perf_counter()]
    for _ in range(steps):
        next(batch)
        time.sleep(SECONDS_TO_TRAIN)
        times.append(time.perf_counter())
    return statistics.median(after - before for before, after in pairwise(times)) * 1e3


# The training


def train(role: cluster.Role, given: argparse.Namespace, examples: data.Examples) -> None:
    server = cluster.server(role)
    total = len(examples.labels)
    own = len(range(role.index, total, role.workers))
    print(f"reads {own} of {total} images", flush=True)
    device = "/device:GPU:0" if tf.config.list_physical_devices("GPU") else "/device:CPU:0"
    with tf.Graph().as_default():
        with cluster.on_ps(role):
            part = shard(examples, role.workers, role.index)
            batch = v1.data.make_initializable_iterator(batches(part, given.batch_size, device))
            # The session runs the initializers of this collection in each process.
            v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, batch.initializer)
            images, labels = batch.get_next()
            loss = model.loss(model.logits(images), labels)
            step = v1.train.get_or_create_global_step()
            update = v1.train.AdamOptimizer(given.learning_rate).minimize(loss, global_step=step)
        v1.summary.scalar("loss", loss)
        hooks = [cluster.Progress(loss)]
        with cluster.open_session(server.target, role, given, hooks) as session:
            while not session.should_stop():
                session.run(update)


if __name__ == "__main__":
    main()
