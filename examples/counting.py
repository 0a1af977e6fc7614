"""Count together on the ps: the smallest work of a cluster, for recipes about roles."""

from __future__ import annotations

import time

import tensorflow as tf

v1 = tf.compat.v1
EACH = 100  # additions of each worker


def serve(cluster: tf.train.ClusterSpec, index: int) -> None:
    """Hold the number until this process is stopped."""
    tf.distribute.Server(cluster, "ps", index).join()


def work(cluster: tf.train.ClusterSpec, index: int) -> None:
    """Add to the number on the ps, until all workers together have reached the goal."""
    own = f"/job:worker/task:{index}"
    # A session that sees only the ps and this worker does not wait for the others.
    config = v1.ConfigProto(device_filters=["/job:ps", own])
    server = tf.distribute.Server(cluster, "worker", index, config=config)
    goal = EACH * cluster.num_tasks("worker")
    with tf.Graph().as_default(), v1.Session(server.target, config=config) as session:
        with tf.device("/job:ps/task:0"):
            total = v1.get_variable("total", [], tf.int64, v1.zeros_initializer())
            initialized, add = v1.is_variable_initialized(total), total.assign_add(1)
        if index == 0:
            session.run(total.initializer)
        while not session.run(initialized):
            time.sleep(0.1)
        for _ in range(EACH):
            session.run(add)
        while session.run(total) < goal:
            time.sleep(0.1)
        print(f"{own} added {EACH}, the total is {session.run(total)}", flush=True)
