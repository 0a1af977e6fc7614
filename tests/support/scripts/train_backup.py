"""Keras' own backup on separate disks: of two synchronous workers only worker 0 has one."""

import argparse
import os
import time

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # Keras 3 has no `fit` for this strategy

import numpy as np
import tensorflow as tf
import tf_keras


class Progress(tf_keras.callbacks.Callback):
    def __init__(self, pace):
        super().__init__()
        self.pace, self.has_begun = pace, False

    def on_epoch_begin(self, epoch, logs=None):
        print("epoch" if self.has_begun else "begins with epoch", epoch, flush=True)
        self.has_begun = True

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(self.pace)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=100000)
    parser.add_argument("--pace", type=float, default=0.05, help="seconds of sleep in each step")
    flags = parser.parse_args()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    x = np.random.default_rng(0).normal(size=(64, 3)).astype("float32")
    examples = tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1))).batch(16)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    with strategy.scope():
        model = tf_keras.Sequential([tf_keras.layers.Dense(1, input_shape=(3,))])
        model.compile("sgd", "mse")
    backup = tf_keras.callbacks.BackupAndRestore("state/backup")
    callbacks = [backup, Progress(flags.pace)]
    model.fit(examples.with_options(options), epochs=flags.epochs, verbose=0, callbacks=callbacks)


if __name__ == "__main__":
    main()
