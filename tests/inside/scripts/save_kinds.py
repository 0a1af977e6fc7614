"""Save checkpoints of every kind: of objects, and sharded with partitioned variables."""

from pathlib import Path

import tensorflow as tf

tf1 = tf.compat.v1

numbers = iter(tf.data.Dataset.range(100).shuffle(50))
next(numbers)
types = [tf.bfloat16, tf.bool, tf.complex64, tf.dtypes.experimental.float8_e5m2]
tf.train.Checkpoint(
    iterator=numbers,
    text=tf.Variable(["", "héllo", "x" * 1000]),
    empty=tf.Variable(tf.zeros([0, 3])),
    large=tf.Variable(tf.random.normal([1000])),
    typed=[tf.Variable(tf.cast([0.0, 1.0], one)) for one in types],
).save("objects/ckpt")

Path("sharded").mkdir()
with tf.Graph().as_default():
    # Each half of the table is on its own device, so in its own shard.
    with tf1.device(lambda op: "/cpu:1" if "part_1" in op.name else "/cpu:0"):
        table = tf1.get_variable("table", [10, 20], partitioner=tf1.fixed_size_partitioner(2))
        words = tf1.get_variable("words", initializer=["one", "two"])
    saver = tf1.train.Saver(sharded=True)
    with tf1.Session(config=tf1.ConfigProto(device_count={"CPU": 2})) as session:
        session.run(tf1.global_variables_initializer())
        saver.save(session, "sharded/model")
