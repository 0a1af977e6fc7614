"""A recommender whose tables are cut into shards on the ps: only the rows of a batch travel."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import cluster
import numpy as np
import tensorflow as tf
from embeddings import ratings

if TYPE_CHECKING:
    import argparse

v1 = tf.compat.v1


def main() -> None:
    parser = cluster.flags(__doc__)
    add = parser.add_argument
    add("--rows", type=int, default=100_000, help="of the users' table")
    add("--width", type=int, default=8, help="numbers in a row")
    add("--learning_rate", type=float, default=0.3)
    parser.set_defaults(batch_size=512, steps=1000)
    given = parser.parse_args()
    role = cluster.role(given)
    if role.job == "ps":
        cluster.serve(role)
    else:
        train(role, given)


class Net(NamedTuple):
    users: tf.Tensor  # ids
    films: tf.Tensor
    stars: tf.Tensor
    tables: list[tf.Variable]  # shards
    loss: tf.Tensor
    update: tf.Operation


def build(role: cluster.Role, given: argparse.Namespace) -> Net:
    users, films = (v1.placeholder(tf.int64, [None], name=name) for name in ("users", "films"))
    stars = v1.placeholder(tf.float32, [None], name="stars")
    # Every table becomes one shard for each ps; the device function takes the ps in turn.
    shards = v1.fixed_size_partitioner(max(role.ps, 1))
    with v1.variable_scope("tables", partitioner=shards):
        of_users, of_films = table("users", given.rows, given), table("films", ratings.FILMS, given)
    # Each ps gathers its own rows of the batch and sends them: a table is never sent.
    mine = v1.nn.embedding_lookup(of_users, users, partition_strategy="div")
    theirs = v1.nn.embedding_lookup(of_films, films, partition_strategy="div")
    guess = ratings.MEAN + tf.reduce_sum(mine * theirs, axis=1)
    loss = tf.reduce_mean((guess - stars) ** 2)
    step = v1.train.get_or_create_global_step()
    # The gradients are IndexedSlices, rows and their numbers; Adagrad updates only these rows.
    optimizer = v1.train.AdagradOptimizer(given.learning_rate)
    tables = [*of_users, *of_films]
    pairs = list(zip(tf.gradients(loss * given.batch_size, tables), tables, strict=True))
    update = optimizer.apply_gradients(pairs, step)
    return Net(users, films, stars, tables, loss, update)


def table(name: str, rows: int, given: argparse.Namespace) -> tf.Variable:
    # The initializer runs on each ps, for its shard: no process ever has the whole table.
    numbers = v1.random_normal_initializer(stddev=0.3)
    return v1.get_variable(name, [rows, given.width], initializer=numbers)


def train(role: cluster.Role, given: argparse.Namespace) -> None:
    server = cluster.server(role)
    examples, tests = ratings.load(given.rows)
    with tf.Graph().as_default():
        with cluster.on_ps(role):
            net = build(role, given)
        v1.summary.scalar("loss", net.loss)
        for shard in net.tables if role.is_chief else ():
            print(f"{shard.op.name} {shard.shape} is on {shard.device}", flush=True)
        error = v1.train.FinalOpsHook(tf.sqrt(net.loss), feed(net, tests))
        hooks = [cluster.Progress(net.loss, every=200), error]
        with cluster.open_session(server.target, role, given, hooks) as session:
            batches = ratings.batches(examples, given.batch_size, seed=role.index)
            if role.is_chief:
                print(traffic(session, net, next(batches)), flush=True)
            while not session.should_stop():
                session.run(net.update, feed(net, next(batches)))
    print(f"test error {error.final_ops_values:.3f} stars", flush=True)
    print(f"test error of a guess that is always the mean {np.std(tests.stars):.3f}", flush=True)


def traffic(session: v1.train.MonitoredSession, net: Net, batch: ratings.Ratings) -> str:
    """Make a few steps, and let TensorFlow record each tensor that a task receives from another.
    A task that is slow to report may be missing in one record: the largest is complete."""
    full, records = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), []
    for _ in range(3):
        records.append(v1.RunMetadata())
        session.run(net.update, feed(net, batch), full, records[-1])
    down = max(received(record, "/job:worker") for record in records)
    up = max(received(record, "/job:ps") for record in records)
    whole = sum(4 * shard.shape.num_elements() for shard in net.tables)
    return f"a step: {down:,} bytes from the ps, {up:,} to them; the tables have {whole:,}"


def received(record: v1.RunMetadata, job: str) -> int:
    """Return the bytes that tasks of a job received from other tasks."""
    return sum(
        output.tensor_description.allocation_description.requested_bytes
        for device in record.step_stats.dev_stats
        if device.device.startswith(job)
        for node in device.node_stats
        if node.node_name == "RecvTensor"
        for output in node.output
    )


def feed(net: Net, batch: ratings.Ratings) -> dict[tf.Tensor, np.ndarray]:
    return {net.users: batch.users, net.films: batch.films, net.stars: batch.stars}


if __name__ == "__main__":
    main()
