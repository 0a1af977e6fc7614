"""A worker's own copy of the net: it trains there by itself, and meets the others now and then.

The central weights lie on the ps: they are saved and evaluated, and they have the names that
digits/model.py gives. The copies are local variables of their workers: nobody else sees them.
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
    """What a worker runs for a batch: within a window, where it is alone, and for the last one."""

    compute: tf.Operation
    communicate: tf.Tensor  # the global step after it


class Replica:
    """The net, computed at this worker's `own` weights, each a copy of one of the `central` ones.

    Every read and write is an operation of its own: who builds on them says their order with
    tf.control_dependencies, as nothing else orders them within a session's run.
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
        """What model.py gets for a variable: the value of this worker's copy of it."""
        central = getter(name, **how)
        # It is initialized after the central ones are, or restored: a worker begins where they are.
        own = self.local(central.read_value(), f"own/{name}")
        self.central.append(central)
        self.own.append(own)
        self.points.append(self.point(own))
        return self.points[-1]

    def point(self, own: tf.Variable) -> tf.Tensor:
        """Where the net is computed, and its gradients: here, at the worker's own weights."""
        return own.read_value()

    def local(self, value: tf.Tensor, name: str) -> tf.Variable:
        """A variable on this worker, in no checkpoint."""
        with v1.device(self.role.device):
            return v1.Variable(
                value, name=name, trainable=False, collections=[v1.GraphKeys.LOCAL_VARIABLES]
            )

    def accrued(self) -> list[tf.Variable]:
        """Where the gradients of a window add up."""
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
    """A ps holds the central weights; a worker trains a copy of some `kind` by the `algorithm`."""
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
    """A window of batches on one's own, with the last one the exchange; and so on."""
    batches = data.batches(examples, given.batch_size, seed=copy.role.index)

    def alone(step_context: v1.train.MonitoredSession.StepContext) -> None:
        # Past the hooks: they read the global step, and within a window nothing is sent.
        step_context.session.run(steps.compute, copy.feed(next(batches)))

    step = 0
    while step < given.steps and not session.should_stop():
        for _ in range(given.window - 1):
            session.run_step_fn(alone)
        step = session.run(steps.communicate, copy.feed(next(batches)))
