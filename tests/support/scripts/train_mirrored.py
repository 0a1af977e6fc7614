"""MultiWorkerMirroredStrategy on separate disks: only worker 0 has a checkpoint to resume from."""

import argparse
import time

import numpy as np
import tensorflow as tf

SLOPES = np.array([[2.0], [-3.0], [0.5]], np.float32)


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--checkpoint_dir", default="checkpoints")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--save_steps", type=int, default=20)
    parser.add_argument("--pace", type=float, default=0.1, help="seconds of sleep in each step")
    parser.add_argument("--raise_at", type=int, help="the step at which worker 1 raises an error")
    return parser.parse_args()


class Model(tf.Module):
    """A linear model and its step count. All workers have equal copies."""

    def __init__(self):
        self.step = tf.Variable(0, dtype=tf.int64)
        self.weights = tf.Variable(np.zeros_like(SLOPES))

    def train(self):
        """Run one step on this replica: its own examples, the mean of all gradients."""
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
    # All workers must save, because saving synchronizes; only the chief's files are used.
    directory = flags.checkpoint_dir + ("" if is_chief else "-scratch")
    checkpoint = tf.train.Checkpoint(model=model)
    saved = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=3)
    if is_chief and saved.latest_checkpoint:
        checkpoint.restore(saved.latest_checkpoint).assert_consumed()
    copy_from_chief(strategy, model, is_chief)
    step = int(model.step.numpy())
    print("restored step" if step else "started at step", step, flush=True)
    train_step = tf.function(lambda: strategy.reduce("MEAN", strategy.run(model.train), axis=None))
    while step < flags.steps:
        if not is_chief and step == flags.raise_at:
            raise ValueError("a broken example")
        loss = train_step()
        step += 1
        time.sleep(flags.pace)
        if step % 5 == 0:
            print(f"step {step} loss {loss.numpy():.4f}", flush=True)
        if step % flags.save_steps == 0 or step == flags.steps:
            saved.save(checkpoint_number=step)


def copy_from_chief(strategy, model, is_chief):
    """Set every variable to worker 0's value: a sum to which the other workers add 0."""
    for variable in model.variables:
        own = variable.numpy() * int(is_chief)
        total = strategy.run(
            lambda value: tf.distribute.get_replica_context().all_reduce("SUM", value),
            (tf.constant(own),),
        )
        variable.assign(strategy.experimental_local_results(total)[0])


if __name__ == "__main__":
    train(tf.distribute.MultiWorkerMirroredStrategy(), parse_flags())
