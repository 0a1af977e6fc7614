"""Save with every API of TensorFlow and Keras, each into its own folder within argv[1]."""

import os
import sys

import keras
import tensorflow as tf

OUT = sys.argv[1]
os.makedirs(OUT)

with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    tf.compat.v1.get_variable("v", initializer=1.0)
    session.run(tf.compat.v1.global_variables_initializer())
    os.makedirs(f"{OUT}/saver")
    tf.compat.v1.train.Saver().save(session, f"{OUT}/saver/model.ckpt", global_step=1)

checkpoint = tf.train.Checkpoint(v=tf.Variable(1.0))
checkpoint.save(f"{OUT}/checkpoint/ckpt")
manager = tf.train.CheckpointManager(checkpoint, f"{OUT}/manager", max_to_keep=2)
for _ in range(3):
    manager.save()
checkpoint.save("within/ckpt")

model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
model.save(f"{OUT}/model.keras")
model.save_weights(f"{OUT}/only.weights.h5")

import tf_keras  # noqa: E402

old = tf_keras.Sequential([tf_keras.layers.Input((1,)), tf_keras.layers.Dense(1)])
old.save(f"{OUT}/tf_keras")
