"""A ParameterServerStrategy script that saves and restores a model of many pieces."""

import json
import os

import large
import numpy as np
import tensorflow as tf

task = json.loads(os.environ["TF_CONFIG"])["task"]
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if task["type"] != "chief":
    tf.distribute.Server(
        resolver.cluster_spec(), job_name=task["type"], task_index=task["index"], protocol="grpc"
    ).join()


def halves_of_the_table(shape, dtype, **options):
    return [2] if shape == [large.TABLE] else [1] * len(shape)


strategy = tf.distribute.ParameterServerStrategy(resolver, halves_of_the_table)
with strategy.scope():
    table = tf.Variable(tf.range(large.TABLE))
    weights = [tf.Variable(lambda i=i: large.value(i)) for i in range(len(large.SHAPES))]
    step = tf.Variable(7, dtype=tf.int64)
words = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
words.insert(tf.constant(["one", "two"]), tf.constant([1, 2], tf.int64))
checkpoint = tf.train.Checkpoint(weights=weights, table=table, step=step, words=words)
warm = tf.train.Checkpoint(step=step, words=words)
warm.read(warm.write("small"))

whole = tf.train.Checkpoint(step=step, weights=weights[:2]).write("whole")
large.piece(4 * large.MB)
large.measure("save", lambda: checkpoint.write("model"))


def check(what):
    for index, weight in enumerate(weights):
        assert np.array_equal(weight.numpy(), large.expected(index)), (what, index)
    assert np.array_equal(tf.convert_to_tensor(table).numpy(), np.arange(large.TABLE)), what
    assert step.numpy() == 7, what
    assert words.lookup(tf.constant(["two"])).numpy() == [2], what
    print("equal", what, flush=True)


@tf.function
def forget():
    for weight in weights:
        weight.assign(tf.zeros_like(weight))
    step.assign(0)


def forget_all():
    forget()
    table.assign(tf.zeros([large.TABLE], tf.int32))
    words.insert(tf.constant(["two"]), tf.constant([5], tf.int64))


forget_all()
large.measure("restore", lambda: checkpoint.read("model").assert_existing_objects_matched())
check("in pieces")

by_task = tf.train.CheckpointOptions(
    experimental_sharding_callback=tf.train.experimental.ShardByTaskPolicy()
)
checkpoint.write("chosen", by_task)
forget_all()
checkpoint.read("chosen").assert_existing_objects_matched()
check("of a checkpoint that is in no pieces")

in_background = tf.train.CheckpointOptions(enable_async=True)
checkpoint.write("async", in_background)
checkpoint.sync()
forget_all()
checkpoint.read("async").assert_existing_objects_matched()
check("saved in the background")

module = tf.Module()
module.weights = weights
module.last = tf.function(lambda: weights[-1] * 1.0, input_signature=[])
tf.saved_model.save(module, "exported", signatures=module.last)

large.differ("tfdeploy_bounded", "send", "read")
differs = tf.train.Checkpoint(weights=weights, table=table, step=step, words=words)
differs.write("differs")
forget_all()
differs.read("differs").assert_existing_objects_matched()
check("of a TensorFlow that differs")
