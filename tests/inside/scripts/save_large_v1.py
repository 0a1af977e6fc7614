"""A compat.v1 script that saves and restores a model of many pieces in a session of a cluster."""

import argparse

import large
import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
tf1.disable_eager_execution()

parser = argparse.ArgumentParser()
parser.add_argument("--job_name")
parser.add_argument("--task_index", type=int)
parser.add_argument("--ps_hosts")
parser.add_argument("--worker_hosts")
flags = parser.parse_args()

cluster = tf.train.ClusterSpec(
    {"ps": flags.ps_hosts.split(","), "worker": flags.worker_hosts.split(",")}
)
server = tf1.train.Server(cluster, job_name=flags.job_name, task_index=flags.task_index)
if flags.job_name == "ps":
    server.join()

with tf1.device(tf1.train.replica_device_setter(cluster=cluster)):
    weights = [
        tf1.get_variable(
            f"weight{i}", initializer=lambda i=i: large.value(i), use_resource=bool(i % 2)
        )
        for i in range(len(large.SHAPES))
    ]
    table = tf1.get_variable(
        "table",
        initializer=tf.range(large.TABLE),
        partitioner=tf1.fixed_size_partitioner(2),
    )
    words = tf1.get_variable("words", initializer=["one", "two"])
forget = tf1.group(
    *(tf1.assign(weight, tf.zeros_like(weight)) for weight in weights),
    *(part.assign(tf.zeros_like(part)) for part in table),
    words.assign(["", ""]),
)
small = tf1.train.Saver([words], sharded=True)
whole = tf1.train.Saver({"words": words, "weight0": weights[0]})
large.piece(4 * large.MB)
saver = tf1.train.Saver(max_to_keep=1)
large.differ("tfdeploy_bounded", "write", "read")
differs = tf1.train.Saver()
objects = tf1.train.Checkpoint(weights=weights, words=words)


def check(what):
    for index, weight in enumerate(weights):
        assert np.array_equal(session.run(weight), large.expected(index)), (what, index)
    assert session.run(words).tolist() == [b"one", b"two"], what
    print("equal", what, flush=True)


with tf1.Session(server.target) as session:
    session.run(tf1.global_variables_initializer())
    small.restore(session, small.save(session, "small"))
    whole.save(session, "whole")
    large.measure("save", lambda: saver.save(session, "model", global_step=1))
    session.run(forget)
    large.measure("restore", lambda: saver.restore(session, "model-1"))
    check("in pieces")
    assert np.array_equal(np.concatenate(session.run(list(table))), np.arange(large.TABLE))

    differs.save(session, "differs")
    session.run(forget)
    differs.restore(session, "differs")
    check("of a TensorFlow that differs")

    path = objects.save("objects", session=session)
    session.run(forget)
    objects.restore(path).assert_consumed().run_restore_ops(session)
    check("of objects")

    saver.save(session, "model", global_step=2)  # deletes the first one
