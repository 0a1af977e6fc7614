"""Towers: one graph, a copy of the net on each device, one set of weights, the mean gradient."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from digits import data, model

v1 = tf.compat.v1


def main() -> None:
    flags = parse_flags()
    examples = data.load("train", flags.data_dir)
    with tf.Graph().as_default():
        graph = Graph(tower_devices(flags.towers), examples, flags)
        print(f"weights on {', '.join({weight.device for weight in graph.weights})}", flush=True)
        print(f"towers on {', '.join(tower.loss.device for tower in graph.towers)}", flush=True)
        with open_session(flags) as session:
            train(session, graph)


def parse_flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--checkpoint_dir", default="checkpoints")
    add("--data-dir", type=Path, help=data.FLAG_HELP)
    add("--controller", default="/device:CPU:0", help="has the weights and averages gradients")
    add("--towers", type=int, default=2)
    add("--steps", type=int, default=300)
    add("--batch_size", type=int, default=64, help="of each tower")
    add("--learning_rate", type=float, default=0.003)
    add("--own_input", action="store_true", help="each tower reads its own batches")
    return parser.parse_args()


def tower_devices(count: int) -> list[str]:
    """Return GPUs if there are enough, else CPU devices, which share only the cores."""
    gpus = len(tf.config.list_physical_devices("GPU"))
    return [f"/device:GPU:{i}" if gpus >= count else f"/device:CPU:{i + 1}" for i in range(count)]


class Tower(NamedTuple):
    loss: tf.Tensor
    gradients: list[tf.Tensor]  # one for each weight, in the same order in every tower


class Graph:
    """The towers, each with its part of the batch; the update waits for all of them."""

    def __init__(
        self, devices: list[str], examples: data.Examples, flags: argparse.Namespace
    ) -> None:
        at, make_input = flags.controller, OwnInput if flags.own_input else SharedInput
        self.input = make_input(examples, len(devices), flags.batch_size)
        parts = zip(devices, *self.input.parts, strict=True)
        self.towers = [tower(at, *part) for part in parts]
        self.weights = v1.trainable_variables()
        self.loss = mean(at, [tower.loss for tower in self.towers])
        v1.summary.scalar("loss", self.loss)

        each = [tower.gradients for tower in self.towers]
        self.averaged = [mean(at, of_one_weight) for of_one_weight in zip(*each, strict=True)]
        self.step = v1.train.get_or_create_global_step()
        optimizer = v1.train.AdamOptimizer(flags.learning_rate)
        self.update = optimizer.apply_gradients(
            zip(self.averaged, self.weights, strict=True), self.step
        )
        # Not for the training: the result of one device with the whole batch.
        images, labels = (tf.concat(each, axis=0) for each in self.input.parts)
        self.whole = tower(at, at, images, labels).gradients


class SharedInput:
    """One input for all towers: the client feeds a large batch, and the graph cuts it into the
    images and the labels of each tower, `parts`."""

    def __init__(self, examples: data.Examples, count: int, batch_size: int) -> None:
        self._batches = data.batches(examples, batch_size * count, seed=0)
        self._whole = model.placeholders(examples.side)
        self.parts = [tf.split(each, count) for each in self._whole]

    def feed(self) -> dict[tf.Tensor, np.ndarray]:
        return dict(zip(self._whole, next(self._batches), strict=True))


class OwnInput:
    """An input for each tower, which reads its batches in its own thread. Nothing is fed."""

    def __init__(self, examples: data.Examples, count: int, batch_size: int) -> None:
        batches = [own_batches(examples, batch_size, seed) for seed in range(count)]
        self.parts = list(zip(*batches, strict=True))

    def feed(self) -> dict[tf.Tensor, np.ndarray]:
        return {}


def own_batches(examples: data.Examples, size: int, seed: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the images and the labels of the next batch."""
    shape = [None, examples.side, examples.side]
    kind = (tf.TensorSpec(shape, tf.float32), tf.TensorSpec([None], tf.int64))
    batches = tf.data.Dataset.from_generator(
        lambda: map(tuple, data.batches(examples, size, seed)), output_signature=kind
    )
    iterator = v1.data.make_initializable_iterator(batches.prefetch(2))
    v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    return iterator.get_next()


def tower(controller: str, device: str, images: tf.Tensor, labels: tf.Tensor) -> Tower:
    """Build a tower. The first one creates the weights; the others find them by name."""
    place = v1.train.replica_device_setter(ps_tasks=1, ps_device=controller, worker_device=device)
    with v1.device(place), v1.variable_scope("", reuse=v1.AUTO_REUSE):
        loss = model.loss(model.logits(images), labels)
        return Tower(loss, tf.gradients(loss, v1.trainable_variables()))


def mean(controller: str, tensors: list[tf.Tensor]) -> tf.Tensor:
    with tf.device(controller):
        return tf.add_n(tensors) / len(tensors)


def open_session(flags: argparse.Namespace) -> v1.train.MonitoredSession:
    return v1.train.MonitoredTrainingSession(
        checkpoint_dir=flags.checkpoint_dir,
        hooks=[v1.train.StopAtStepHook(last_step=flags.steps)],
        save_checkpoint_steps=100,
        save_summaries_steps=10,
        config=v1.ConfigProto(device_count={"CPU": 1 + flags.towers}),
    )


def train(session: v1.train.MonitoredSession, graph: Graph) -> None:
    compare(session, graph)
    while not session.should_stop():
        fetches = [graph.update, graph.step, graph.loss]
        _, step, loss = session.run(fetches, graph.input.feed())
        if step % 50 == 0:
            print(f"step {step} loss {loss:.3f}", flush=True)
    print(f"ended after {step + 1} steps", flush=True)


def compare(session: v1.train.MonitoredSession, graph: Graph) -> None:
    fetches = [graph.averaged, graph.whole]
    # Not through the session's hooks, which count every run as a step.
    averaged, whole = session.run_step_fn(
        lambda step_context: step_context.session.run(fetches, graph.input.feed())
    )
    apart = max(np.abs(a - w).max() for a, w in zip(averaged, whole, strict=True))
    print(f"mean gradients differ from those of one big batch by at most {apart:.1e}", flush=True)


if __name__ == "__main__":
    main()
