"""The recommender under ParameterServerStrategy: its tables are ShardedVariables on the ps."""

from __future__ import annotations

import argparse
import functools
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf
from embeddings import ratings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tensorflow.distribute.cluster_resolver import ClusterResolver
    from tensorflow.distribute.coordinator import ClusterCoordinator, RemoteValue

AT_ONCE = 100  # Steps that are scheduled before the chief waits for them and reports the loss.
tf.get_logger().setLevel("ERROR")


def main() -> None:
    given = parse_flags()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type == "chief":
        train(resolver, given)
    else:
        cluster, job, index = resolver.cluster_spec(), resolver.task_type, resolver.task_id
        tf.distribute.Server(cluster, job, index, protocol="grpc").join()


def parse_flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--checkpoint_dir", default="checkpoints")
    add("--steps", type=int, default=1000)
    add("--batch_size", type=int, default=512, help="of each worker")
    add("--save_steps", type=int, default=500, help="steps between two checkpoints")
    add("--rows", type=int, default=100_000, help="of the users' table")
    add("--width", type=int, default=8, help="numbers in a row")
    add("--learning_rate", type=float, default=0.05)
    return parser.parse_args()


def train(resolver: ClusterResolver, given: argparse.Namespace) -> None:
    ps = resolver.cluster_spec().num_tasks("ps")
    # A variable becomes at most one shard for each ps, and none is smaller than 1024 bytes.
    cut = tf.distribute.experimental.partitioners.MinSizePartitioner(1024, max_shards=ps)
    strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=cut)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        net = Net(given)
    for table in (net.users, net.films):
        for shard in table.variables:
            print(f"{shard.name} {shard.shape} is on {shard.device}", flush=True)
    _, tests = ratings.load(given.rows)
    batches = iter(coordinator.create_per_worker_dataset(lambda: dataset(given)))

    @tf.function
    def worker_step(batches: tf.data.Iterator) -> tf.Tensor:
        return net.learn(next(batches))

    def hand_out() -> RemoteValue:
        return coordinator.schedule(worker_step, args=(batches,))

    follow(coordinator, hand_out, net, given)
    print(f"test error {net.error(tests):.3f} stars", flush=True)
    print(f"test error of a guess that is always the mean {np.std(tests.stars):.3f}", flush=True)


def dataset(given: argparse.Namespace) -> tf.data.Dataset:
    examples, _ = ratings.load(given.rows)
    shuffled = tf.data.Dataset.from_tensor_slices(tuple(examples)).shuffle(len(examples.stars))
    return shuffled.repeat().batch(given.batch_size).prefetch(2)


class Net(tf.Module):
    """Two tables: a user's stars for a film are the product of their rows. Create it in scope."""

    def __init__(self, given: argparse.Namespace) -> None:
        super().__init__()
        self.rate = given.learning_rate
        self.users = self.table("users", given.rows, given.width)
        self.films = self.table("films", ratings.FILMS, given.width)
        self.step = tf.Variable(0, dtype=tf.int64)

    def table(self, name: str, rows: int, width: int) -> tf.Variable:
        # A function of the shape: each ps makes its own shard, and the chief never has the table.
        numbers = functools.partial(
            tf.random_normal_initializer(stddev=0.3), [rows, width], tf.float32
        )
        return tf.Variable(numbers, shape=[rows, width], dtype=tf.float32, name=name)

    def loss(self, batch: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """Return the squared errors. Each ps gathers its own rows: a table is never sent."""
        users, films, stars = batch
        mine = tf.nn.embedding_lookup(self.users, users)
        theirs = tf.nn.embedding_lookup(self.films, films)
        return (ratings.MEAN + tf.reduce_sum(mine * theirs, axis=1) - stars) ** 2

    def learn(self, batch: tuple[tf.Tensor, ...]) -> tf.Tensor:
        shards = [*self.users.variables, *self.films.variables]
        with tf.GradientTape() as tape:
            losses = self.loss(batch)
        # IndexedSlices: the rows of the batch. The ps subtract them from these rows only.
        for shard, slices in zip(shards, tape.gradient(losses, shards), strict=True):
            shard.scatter_sub(tf.IndexedSlices(self.rate * slices.values, slices.indices))
        self.step.assign_add(1)
        return tf.reduce_mean(losses)

    def error(self, tests: ratings.Ratings) -> float:
        return float(tf.sqrt(tf.reduce_mean(self.loss(tests))))


def follow(
    coordinator: ClusterCoordinator,
    hand_out: Callable[[], RemoteValue],
    net: Net,
    given: argparse.Namespace,
) -> None:
    """Schedule steps on free workers until there are enough."""
    checkpoint = tf.train.Checkpoint(net=net)
    manager = tf.train.CheckpointManager(checkpoint, given.checkpoint_dir, max_to_keep=2)
    manager.restore_or_initialize()
    step = int(net.step.numpy())
    due = step + given.save_steps
    while step < given.steps:
        losses = [hand_out() for _ in range(min(AT_ONCE, given.steps - step))]
        coordinator.join()
        step = int(net.step.numpy())
        print(f"step {step} loss {np.mean(coordinator.fetch(losses)):.3f}", flush=True)
        if step >= min(due, given.steps):
            manager.save(checkpoint_number=step)
            due = step + given.save_steps


if __name__ == "__main__":
    main()
