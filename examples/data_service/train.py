"""tf.data's service: processes that only prepare images, for a trainer that only trains."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import NamedTuple

import keras_digits
import tensorflow as tf
from digits import data

service = tf.data.experimental.service


class Task(NamedTuple):
    """This process and the addresses of all, as TF_CONFIG has them.

    The job ps is the dispatcher, a worker prepares images, and the chief trains.
    """

    jobs: dict[str, list[str]]
    job: str
    index: int

    @property
    def address(self) -> str:
        return self.jobs[self.job][self.index]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def dispatcher(self) -> str:
        return self.jobs["ps"][0]


def main() -> None:
    config = json.loads(os.environ["TF_CONFIG"])
    task = Task(config["cluster"], config["task"]["type"], int(config["task"]["index"]))
    if task.job == "chief":
        train(task, parse_flags())
    elif task.job == "ps":
        service.DispatchServer(service.DispatcherConfig(port=task.port)).join()
    else:
        prepare(task)


def parse_flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--epochs", type=int, default=8)
    add("--batch_size", type=int, default=32)
    add("--data-dir", type=Path, help=data.FLAG_HELP)
    return parser.parse_args()


def prepare(task: Task) -> None:
    """Run parts of the trainer's pipeline until this process is stopped. It is sent as a graph."""
    config = service.WorkerConfig(
        dispatcher_address=task.dispatcher, worker_address=task.address, port=task.port
    )
    service.WorkerServer(config).join()


def pipeline(examples: data.Examples, task: Task, size: int) -> tf.data.Dataset:
    """Return one epoch. The workers run what is above `distribute`, this process the rest."""
    images = examples.images[..., None], examples.labels
    return (
        tf.data.Dataset.from_tensor_slices(images)
        .shuffle(len(examples.labels))
        .map(vary, num_parallel_calls=tf.data.AUTOTUNE)
        .batch(size)
        # Dynamic: each worker gets the next part when it is ready, and each image comes once.
        .apply(service.distribute(service.ShardingPolicy.DYNAMIC, f"grpc://{task.dispatcher}"))
        .prefetch(2)
    )


def vary(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the image a little lighter or darker, differently each time."""
    return image * tf.random.uniform([], 0.8, 1.2), label


def train(task: Task, given: argparse.Namespace) -> None:
    examples, tests = data.load("train", given.data_dir), data.load("test", given.data_dir)
    net, optimizer = keras_digits.model(examples.side), tf.keras.optimizers.Adam(0.003)

    @tf.function(reduce_retracing=True)
    def learn(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(keras_digits.losses(labels, net(images, training=True)))
        optimizer.apply(tape.gradient(loss, net.trainable_variables), net.trainable_variables)
        return loss

    epoch = pipeline(examples, task, given.batch_size)
    for number in range(1, given.epochs + 1):
        received = 0
        for images, labels in epoch:
            loss = learn(images, labels)
            received += len(labels)
        print(f"epoch {number}: {received} images, loss {loss:.3f}", flush=True)
    right = tf.argmax(net(tests.images[..., None]), 1) == tests.labels
    print(f"test accuracy {tf.reduce_mean(tf.cast(right, tf.float32)):.3f}", flush=True)


if __name__ == "__main__":
    main()
