"""A MultiWorkerMirroredStrategy script: every worker saves a copy of its own, as TensorFlow asks."""

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    weight = tf.Variable(1.0)
    total = tf.Variable(0.0, aggregation=tf.VariableAggregation.SUM)


@tf.function
def train():
    def one():
        total.assign_add(weight)

    strategy.run(one)


for _ in range(3):
    train()
checkpoint = tf.train.Checkpoint(weight=weight, total=total)
path = checkpoint.save("checkpoints/ckpt")
total.assign(0.0)
checkpoint.restore(path).assert_consumed()
print("restored", total.numpy())
