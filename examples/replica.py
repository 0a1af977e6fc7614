"""What the recipes with own copies share: local variables, and a loop that trains windows.

The algorithms themselves are in their train.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import centre
import cluster
import tensorflow as tf
from digits import data

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np

v1 = tf.compat.v1


class Net(Protocol):
    """What a recipe builds: `compute` trains a batch; `communicate` does and also exchanges."""

    images: tf.Tensor
    labels: tf.Tensor
    loss: tf.Tensor
    central: list[tf.Variable]
    own: list[tf.Variable]
    compute: tf.Operation
    communicate: tf.Tensor  # the global step after it


def local(role: cluster.Role, value: tf.Tensor, name: str) -> tf.Variable:
    """Create a variable on this worker that no other task sees and no checkpoint contains."""
    with v1.device(role.device):
        return v1.Variable(
            value, name=name, trainable=False, collections=[v1.GraphKeys.LOCAL_VARIABLES]
        )


def copies(role: cluster.Role, weights: Sequence[tf.Variable]) -> list[tf.Variable]:
    """Create this worker's copies. They start with the values that the chief has initialized."""
    return [local(role, w.read_value(), f"own/{w.op.name}") for w in weights]


def zeros(role: cluster.Role, weights: Sequence[tf.Variable], name: str) -> list[tf.Variable]:
    """Create a local variable of zeros for each weight."""
    return [local(role, tf.zeros(w.shape), f"{name}/{w.op.name}") for w in weights]


def feed(net: Net, batch: data.Examples) -> dict[tf.Tensor, np.ndarray]:
    return {net.images: batch.images, net.labels: batch.labels}


def run(
    given: argparse.Namespace,
    build: Callable[[cluster.Role, int, argparse.Namespace], Net],
    loop: Callable[..., None] | None = None,
) -> None:
    """Run this process's job: a ps holds the central weights, a worker trains a copy of them."""
    role = cluster.role(given)
    if role.job == "ps":
        cluster.serve(role)
    examples = data.load("train")
    server = cluster.server(role)
    with tf.Graph().as_default():
        with cluster.on_ps(role):  # variables on the ps, if they are not local
            net = build(role, examples.side, given)
            measured = centre.hooks(role, given, net.central)
        v1.summary.scalar("loss", net.loss)
        places = cluster.places(net.central), cluster.places(net.own)
        print(f"weights on {places[0]}, own copy on {places[1]}", flush=True)
        hooks = [cluster.Progress(net.loss, batches=given.window), *measured]
        with cluster.open_session(server.target, role, given, hooks) as session:
            (loop or windows)(session, net, given, cluster.batches(examples, role, given))


def windows(
    session: v1.train.MonitoredSession,
    net: Net,
    given: argparse.Namespace,
    batches: Iterator[data.Examples],
) -> None:
    """Train windows of batches; the last batch of each window also exchanges with the ps."""
    step = 0
    while step < given.steps and not session.should_stop():
        for _ in range(given.window - 1):
            alone(session, net.compute, feed(net, next(batches)))
        step = session.run(net.communicate, feed(net, next(batches)))


def alone(
    session: v1.train.MonitoredSession,
    operation: tf.Operation | tf.Tensor,
    feed: dict[tf.Tensor, np.ndarray] | None = None,
) -> np.ndarray | None:
    """Run without the hooks: they read the global step from the ps, but a window sends nothing."""
    return session.run_step_fn(lambda step_context: step_context.session.run(operation, feed))
