"""One net on two tasks: the convolutions and their weights on one, the rest on the other."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import tensorflow as tf
from digits import data, model

v1 = tf.compat.v1
FIRST, SECOND = "/job:worker/task:0", "/job:worker/task:1"


def main() -> None:
    flags = parse_flags()
    here = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if here.cluster_spec().as_dict().keys() != {"worker"}:
        sys.exit("train.py: TF_CONFIG must name the two workers")
    # Without device filters: the two tasks must see each other.
    server = tf.distribute.Server(here.cluster_spec(), here.task_type, here.task_id)
    if here.task_id == 0:
        with tf.Graph().as_default():
            train(server.target, flags)
    else:
        server.join()  # It computes what the chief's session sends, until it is stopped.


def parse_flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--checkpoint_dir", default="checkpoints")
    add("--data-dir", type=Path, help=data.FLAG_HELP)
    add("--steps", type=int, default=400)
    add("--batch_size", type=int, default=64)
    add("--learning_rate", type=float, default=0.003)
    return parser.parse_args()


def train(target: str, flags: argparse.Namespace) -> None:
    examples = data.load("train", flags.data_dir)
    graph = Graph(examples.side, flags.learning_rate)
    for weight in v1.trainable_variables():
        print(f"{weight.op.name} {weight.shape} is on {weight.device}", flush=True)
    print(f"sent between the two: {' and '.join(sorted(crossing()))}", flush=True)
    batches = data.batches(examples, flags.batch_size, seed=0)
    with open_session(target, flags) as session:
        while not session.should_stop():
            batch = next(batches)
            feed = {graph.images: batch.images, graph.labels: batch.labels}
            _, step, loss = session.run([graph.update, graph.step, graph.loss], feed)
            if step % 100 == 0:
                print(f"step {step} loss {loss:.3f}", flush=True)
    print(f"ended after {step + 1} steps", flush=True)


class Graph:
    def __init__(self, side: int, learning_rate: float) -> None:
        with v1.device(layer_by_layer):
            self.images, self.labels = model.placeholders(side)
            self.loss = model.loss(model.logits(self.images), self.labels)
        v1.summary.scalar("loss", self.loss)
        self.step = v1.train.get_or_create_global_step()
        # The backward pass is split like the forward pass: each gradient is computed with its op.
        self.update = v1.train.AdamOptimizer(learning_rate).minimize(
            self.loss, self.step, colocate_gradients_with_ops=True
        )


def layer_by_layer(op: tf.Operation) -> str:
    """Return an op's task by its name, which starts with the name of its layer."""
    return FIRST if op.name.startswith(("images", "ExpandDims", "convolution")) else SECOND


def crossing() -> set[str]:
    """Return the tensors that one task computes and the other needs."""
    return {
        f"{tensor.name} {tensor.shape}"
        for op in v1.get_default_graph().get_operations()
        for tensor in op.inputs
        if {op.device, tensor.device} == {FIRST, SECOND}
    }


def open_session(target: str, flags: argparse.Namespace) -> v1.train.MonitoredSession:
    """Open a session whose saver has all weights sent to the chief. The default saver writes each
    weight on its own task, half of them on the other task's disk."""
    with tf.device(f"{FIRST}/device:CPU:0"):
        saver = v1.train.Saver(sharded=False)
    return v1.train.MonitoredTrainingSession(
        target,
        scaffold=v1.train.Scaffold(saver=saver),
        checkpoint_dir=flags.checkpoint_dir,
        hooks=[v1.train.StopAtStepHook(last_step=flags.steps)],
        save_checkpoint_steps=200,
        save_summaries_steps=10,
    )


if __name__ == "__main__":
    main()
