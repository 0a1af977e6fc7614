"""The loss of the central weights on the test images, for comparing algorithms."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import tensorflow as tf
from digits import data, model

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    import cluster

v1 = tf.compat.v1


class Measured(v1.train.SessionRunHook):
    """Print `centre at step N loss X after S s` at intervals: the weights on the ps, evaluated.

    A worker's own copy may be much better or worse than they are. The chief measures, and is
    delayed by it.
    """

    def __init__(self, central: Sequence[tf.Variable], every: int) -> None:
        tests = data.load("test")
        outputs = model.outputs(tf.constant(tests.images), central)
        self.loss = model.loss(outputs, tf.constant(tests.labels))
        self.step, self.every, self.reported = v1.train.get_global_step(), every, -1

    def after_create_session(self, session: v1.Session, *_: object) -> None:
        self.start = time.monotonic()

    def before_run(self, _: v1.train.SessionRunContext) -> v1.train.SessionRunArgs:
        return v1.train.SessionRunArgs(self.step)

    def after_run(self, run: v1.train.SessionRunContext, values: v1.train.SessionRunValues) -> None:
        if values.results // self.every > self.reported:
            self.reported = values.results // self.every
            self.report(run.session)

    def end(self, session: v1.Session) -> None:
        self.report(session)

    def report(self, session: v1.Session) -> None:
        step, loss = session.run([self.step, self.loss])
        took = time.monotonic() - self.start
        print(f"centre at step {step} loss {loss:.4f} after {took:.2f} s", flush=True)


def hooks(
    role: cluster.Role, given: argparse.Namespace, central: Sequence[tf.Variable]
) -> list[Measured]:
    """Return the chief's hook, if --measure_every asks for it."""
    if not role.is_chief or not given.measure_every:
        return []
    return [Measured(central, given.measure_every)]
