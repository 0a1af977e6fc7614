"""A MultiWorkerMirroredStrategy script: every worker saves a copy, as TensorFlow requires."""

import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    weight = tf.Variable(1.0)
    total = tf.Variable(0.0)


@tf.function
def train():
    each = strategy.run(lambda: weight.read_value())
    return strategy.reduce("SUM", each, axis=None)


for _ in range(3):
    total.assign_add(train())
checkpoint = tf.train.Checkpoint(weight=weight, total=total)
path = checkpoint.save("checkpoints/ckpt")
total.assign(0.0)
checkpoint.restore(path).assert_consumed()
print("restored", total.numpy())
