"""Learn y = x0 - 2 x1 + 3 x2 with MultiWorkerMirroredStrategy and a training loop."""

import argparse
import time

import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
steps = parser.parse_args().steps

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    weights = tf.Variable(tf.zeros([3, 1]))
checkpoints = tf.train.CheckpointManager(
    tf.train.Checkpoint(weights=weights), "checkpoints", max_to_keep=3
)


def replica_step():
    x = tf.random.normal([64, 3])  # each worker has its own data
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weights - x @ [[1.0], [-2.0], [3.0]]) ** 2)
    gradient = tape.gradient(loss, weights)
    mean = tf.distribute.get_replica_context().all_reduce("MEAN", gradient)
    weights.assign_sub(0.01 * mean)
    return loss


@tf.function
def train_step():
    return strategy.reduce("MEAN", strategy.run(replica_step), axis=None)


saved = 0.0
for step in range(1, steps + 1):
    loss = train_step()
    if step % 50 == 0:
        print(f"step {step} loss {loss:.4f}", flush=True)
    if strategy.cluster_resolver.task_id == 0 and time.time() > saved + 600:
        checkpoints.save(step)
        saved = time.time()
