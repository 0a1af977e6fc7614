"""ParameterServerStrategy: the chief schedules steps on the workers and saves what the ps hold."""

import argparse
import time

import numpy as np
import tensorflow as tf

SLOPES = np.array([[2.0], [-3.0], [0.5]], np.float32)
# tf.summary.scalar needs TensorBoard's package, tf.summary.write nothing but this.
SCALAR = tf.compat.v1.SummaryMetadata(plugin_data={"plugin_name": "scalars"})


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--checkpoint_dir", default="checkpoints")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--save_steps", type=int, default=100)
    parser.add_argument("--pace", type=float, default=0.02, help="seconds of sleep in each step")
    return parser.parse_args()


def serve(resolver):
    """Hold variables or compute for the chief, until somebody ends this process."""
    cluster, job, index = resolver.cluster_spec(), resolver.task_type, resolver.task_id
    tf.distribute.Server(cluster, job_name=job, task_index=index, protocol="grpc").join()


class Model(tf.Module):
    """A line to fit, and how many steps it took. Its variables lie on the ps."""

    def __init__(self):
        self.step = tf.Variable(0, dtype=tf.int64)
        self.weights = tf.Variable(np.zeros_like(SLOPES))
        self.loss = tf.Variable(0.0)

    @tf.function
    def train(self):
        x = tf.random.normal([32, SLOPES.shape[0]])
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ self.weights - x @ SLOPES) ** 2)
        self.weights.assign_sub(0.002 * tape.gradient(loss, self.weights))
        self.loss.assign(loss)
        self.step.assign_add(1)


def train(resolver, flags):
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model = Model()
    checkpoint = tf.train.Checkpoint(model=model)
    saved = tf.train.CheckpointManager(checkpoint, flags.checkpoint_dir, max_to_keep=3)
    step = restore(checkpoint, saved, model)
    # Not at its multiples: what a dying worker had begun is done again, and the step counts it.
    due = step + flags.save_steps
    with tf.summary.create_file_writer("events").as_default():
        while step < flags.steps:
            step = schedule(coordinator, model, min(10, flags.steps - step), flags.pace)
            tf.summary.write("loss", model.loss.read_value(), step, SCALAR)
            print(f"step {step} loss {model.loss.numpy():.4f}", flush=True)
            if step >= min(due, flags.steps):
                saved.save(checkpoint_number=step)
                due = step + flags.save_steps


def restore(checkpoint, saved, model):
    if saved.latest_checkpoint:
        checkpoint.restore(saved.latest_checkpoint).assert_consumed()
        print("restored step", model.step.numpy(), flush=True)
    return int(model.step.numpy())


def schedule(coordinator, model, steps, pace):
    """Let the workers share so many steps; returns the step at which all of them are done."""
    for _ in range(steps):
        coordinator.schedule(model.train)
        time.sleep(pace)
    coordinator.join()
    return int(model.step.numpy())


if __name__ == "__main__":
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type == "chief":
        train(resolver, parse_flags())
    else:
        serve(resolver)
