"""MultiWorkerMirroredStrategy on separate disks: worker 0 alone has a checkpoint to resume from."""

import argparse
import time

import numpy as np
import tensorflow as tf

SLOPES = np.array([[2.0], [-3.0], [0.5]], np.float32)


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--checkpoint_dir", default="checkpoints")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--save_steps", type=int, default=100)
    parser.add_argument("--pace", type=float, default=0.02, help="seconds of sleep in each step")
    return parser.parse_args()


class Model(tf.Module):
    """A line to fit, and how many steps it took. Each worker has a copy, kept equal."""

    def __init__(self):
        self.step = tf.Variable(0, dtype=tf.int64)
        self.weights = tf.Variable(np.zeros_like(SLOPES))

    def train(self):
        """One replica's part of a step: its own examples, everybody's gradients."""
        x = tf.random.normal([32, SLOPES.shape[0]])
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ self.weights - x @ SLOPES) ** 2)
        gradient = tape.gradient(loss, self.weights)
        gradient = tf.distribute.get_replica_context().all_reduce("MEAN", gradient)
        self.weights.assign_sub(0.002 * gradient)
        self.step.assign_add(1)
        return loss


def train(strategy, flags):
    is_chief = strategy.cluster_resolver.task_id == 0
    with strategy.scope():
        model = Model()
    # All must save, for a save synchronizes; what the others write is thrown away.
    directory = flags.checkpoint_dir + ("" if is_chief else "-scratch")
    checkpoint = tf.train.Checkpoint(model=model)
    saved = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=3)
    if is_chief and saved.latest_checkpoint:
        checkpoint.restore(saved.latest_checkpoint).assert_consumed()
    take_from_chief(strategy, model, is_chief)
    step = int(model.step.numpy())
    print("restored step" if step else "began at step", step, flush=True)
    train_step = tf.function(lambda: strategy.reduce("MEAN", strategy.run(model.train), axis=None))
    while step < flags.steps:
        loss = train_step()
        step += 1
        time.sleep(flags.pace)
        if step % 10 == 0:
            print(f"step {step} loss {loss.numpy():.4f}", flush=True)
        if step % flags.save_steps == 0 or step == flags.steps:
            saved.save(checkpoint_number=step)


def take_from_chief(strategy, model, is_chief):
    """The sum over all workers, to which all but worker 0 add nothing, is worker 0's value."""
    for variable in model.variables:
        mine = variable.numpy() * int(is_chief)
        total = strategy.run(
            lambda mine: tf.distribute.get_replica_context().all_reduce("SUM", mine),
            (tf.constant(mine),),
        )
        variable.assign(strategy.experimental_local_results(total)[0])


if __name__ == "__main__":
    train(tf.distribute.MultiWorkerMirroredStrategy(), parse_flags())
