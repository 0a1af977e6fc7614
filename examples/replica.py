"""A worker's own copy of the net, which it trains by itself and exchanges with the ps at times.

The central weights are on the ps: they are saved and evaluated, and have the names of
digits/model.py. The copies are local variables of their workers; no other task sees them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import cluster
import tensorflow as tf
from digits import data, model

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    import numpy as np

v1 = tf.compat.v1


class Steps(NamedTuple):
    """What a worker runs for a batch: `compute` in a window, `communicate` for its last batch."""

    compute: tf.Operation
    communicate: tf.Tensor  # the global step after it


class Replica:
    """The net, computed with this worker's `own` weights, each a copy of one of the `central` ones.

    Every read and write is a separate operation. Nothing orders them within a session's run except
    tf.control_dependencies, so the caller must set those.
    """

    def __init__(self, role: cluster.Role, side: int) -> None:
        self.role = role
        self.central: list[tf.Variable] = []
        self.own: list[tf.Variable] = []
        self.points: list[tf.Tensor] = []
        self.images, self.labels = model.placeholders(side)
        with v1.variable_scope(v1.get_variable_scope(), custom_getter=self._copied):
            outputs = model.logits(self.images)
        self.loss = model.loss(outputs, self.labels)
        self.gradients = tf.gradients(self.loss, self.points)
        self.step = v1.train.get_or_create_global_step()
        v1.summary.scalar("loss", self.loss)

    def _copied(self, getter: Callable[..., tf.Variable], name: str, **how: Any) -> tf.Tensor:
        """Return to model.py, for a variable, the value of this worker's copy of it."""
        central = getter(name, **how)
        # Initialized after the central weights are initialized or restored, with their values.
        own = self.local(central.read_value(), f"own/{name}")
        self.central.append(central)
        self.own.append(own)
        self.points.append(self.point(own))
        return self.points[-1]

    def point(self, own: tf.Variable) -> tf.Tensor:
        """Return the weights at which the net and its gradients are computed: the worker's own."""
        return own.read_value()

    def local(self, value: tf.Tensor, name: str) -> tf.Variable:
        """Create a variable on this worker that no checkpoint contains."""
        with v1.device(self.role.device):
            return v1.Variable(
                value, name=name, trainable=False, collections=[v1.GraphKeys.LOCAL_VARIABLES]
            )

    def accrued(self) -> list[tf.Variable]:
        """Create the variables in which the gradients of a window are added up."""
        return [self.local(tf.zeros(own.shape), f"accrued/{own.op.name}") for own in self.own]

    def descend(self, rate: float) -> tf.Operation:
        """own ← own - rate · gradient."""
        return tf.group(
            *[own.assign_sub(rate * g) for own, g in zip(self.own, self.gradients, strict=True)]
        )

    def accrue(self, accrued: list[tf.Variable]) -> tf.Operation:
        """accrued ← accrued + gradient."""
        return tf.group(*[a.assign_add(g) for a, g in zip(accrued, self.gradients, strict=True)])

    def pull(self) -> tf.Operation:
        """own ← central."""
        pairs = zip(self.own, self.central, strict=True)
        return tf.group(*[own.assign(central.read_value()) for own, central in pairs])

    def steps(self, computed: tf.Operation, communicated: tf.Operation) -> Steps:
        with tf.control_dependencies([communicated]):
            return Steps(computed, self.step.read_value())

    def feed(self, batch: data.Examples) -> dict[tf.Tensor, np.ndarray]:
        return {self.images: batch.images, self.labels: batch.labels}


def forget(accrued: list[tf.Variable]) -> tf.Operation:
    return tf.group(*[a.assign(tf.zeros(a.shape)) for a in accrued])


def run(
    given: argparse.Namespace,
    algorithm: Callable[[Replica, argparse.Namespace], Steps],
    kind: Callable[[cluster.Role, int], Replica] = Replica,
) -> None:
    """Run this process's job: a ps holds the central weights, a worker trains a copy of them.

    `algorithm` returns the worker's steps, `kind` is the class of its copy.
    """
    role = cluster.role(given)
    if role.job == "ps":
        cluster.serve(role)
    examples = data.load("train")
    server = cluster.server(role)
    with tf.Graph().as_default():
        with cluster.on_ps(role):
            copy = kind(role, examples.side)
            steps = algorithm(copy, given)
        places = cluster.places(copy.central), cluster.places(copy.own)
        print(f"weights on {places[0]}, own copy on {places[1]}", flush=True)
        hooks = [cluster.Progress(copy.loss, batches=given.window)]
        with cluster.open_session(server.target, role, given, hooks) as session:
            train(session, copy, steps, given, examples)


def train(
    session: v1.train.MonitoredSession,
    copy: Replica,
    steps: Steps,
    given: argparse.Namespace,
    examples: data.Examples,
) -> None:
    """Train windows of batches; the last batch of each window also exchanges with the ps."""
    batches = data.batches(examples, given.batch_size, seed=copy.role.index)

    def alone(step_context: v1.train.MonitoredSession.StepContext) -> None:
        # Not through the hooks: they read the global step from the ps, but a window sends nothing.
        step_context.session.run(steps.compute, copy.feed(next(batches)))

    step = 0
    while step < given.steps and not session.should_stop():
        for _ in range(given.window - 1):
            session.run_step_fn(alone)
        step = session.run(steps.communicate, copy.feed(next(batches)))
