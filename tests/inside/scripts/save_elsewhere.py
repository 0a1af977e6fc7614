"""Save with every API of TensorFlow, Keras, NumPy and Python, each with a name of its own in the
folder argv[1], which exists. Keep no temporary file."""

import os
import pickle
import sys
import tempfile

import keras
import numpy as np
import tensorflow as tf

OUT = sys.argv[1]

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

tf.summary.create_file_writer(f"{OUT}/summary").close()  # as Keras' TensorBoard callback does
with tf.Graph().as_default() as graph:
    tf.compat.v1.summary.FileWriter(f"{OUT}/file_writer", graph).close()

model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
model.save(f"{OUT}/model.keras")
model.save_weights(f"{OUT}/only.weights.h5")

import tf_keras  # noqa: E402

old = tf_keras.Sequential([tf_keras.layers.Input((1,)), tf_keras.layers.Dense(1)])
old.save(f"{OUT}/tf_keras")
old.save_weights(f"{OUT}/old.weights.h5")

data = np.ones((4, 1))
np.savez(f"{OUT}/arrays.npz", data)
with open(f"{OUT}/object.pkl", "wb") as file:
    pickle.dump(data, file)
with tempfile.TemporaryFile() as file, tempfile.NamedTemporaryFile() as named:
    file.write(b"x")
    named.write(b"x")
os.system(f"echo x > {OUT}/command.txt")
os.chdir(OUT)
with open("after_chdir.csv", "w") as file:
    file.write("x")
