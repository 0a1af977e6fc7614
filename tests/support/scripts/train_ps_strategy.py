"""ParameterServerStrategy: the chief schedules steps on the workers and saves the variables."""

import argparse
import time

import numpy as np
import tensorflow as tf

SLOPES = np.array([[2.0], [-3.0], [0.5]], np.float32)
# tf.summary.scalar needs TensorBoard's package; tf.summary.write only needs this.
SCALAR = tf.compat.v1.SummaryMetadata(plugin_data={"plugin_name": "scalars"})


def parse_flags():
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--checkpoint_dir", default="checkpoints")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--save_steps", type=int, default=20)
    parser.add_argument("--pace", type=float, default=0.1, help="seconds of sleep in each step")
    return parser.parse_args()


def serve(resolver):
    """Store variables or compute for the chief, until this process is ended."""
    cluster, job, index = resolver.cluster_spec(), resolver.task_type, resolver.task_id
    tf.distribute.Server(cluster, job_name=job, task_index=index, protocol="grpc").join()


class Model(tf.Module):
    """A linear model and its step count. Its variables are on the ps."""

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
    # Not at multiples of save_steps: a step that a lost worker had started is repeated and counted
    # twice, so the count may skip them.
    save_at = step + flags.save_steps
    with tf.summary.create_file_writer("events").as_default():
        while step < flags.steps:
            step = schedule(coordinator, model, min(5, flags.steps - step), flags.pace)
            tf.summary.write("loss", model.loss.read_value(), step, SCALAR)
            print(f"step {step} loss {model.loss.numpy():.4f}", flush=True)
            if step >= min(save_at, flags.steps):
                saved.save(checkpoint_number=step)
                save_at = step + flags.save_steps


def restore(checkpoint, saved, model):
    if saved.latest_checkpoint:
        checkpoint.restore(saved.latest_checkpoint).assert_consumed()
        print("restored step", model.step.numpy(), flush=True)
    return int(model.step.numpy())


def schedule(coordinator, model, steps, pace):
    """Let the workers run `steps` steps; return the step count after all of them."""
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
