"""Which ps holds which variable: assigned in turn, or each to the ps with the fewest bytes so far.

In turn, a net of kernels and biases on two ps has all kernels on one ps and all biases on the
other. The first one then carries almost all the traffic.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import cluster
import tensorflow as tf
from digits import data, model

if TYPE_CHECKING:
    import argparse

v1 = tf.compat.v1
PLACEMENTS = ("round_robin", "balanced", "sliced")
SLICE_BYTES = 8192


class LeastLoaded:
    """GreedyLoadBalancingStrategy with byte_size_load_fn, as TensorFlow 1 had in tf.contrib."""

    def __init__(self, ps: int) -> None:
        self.loads = [0] * ps

    def __call__(self, variable: tf.Operation) -> int:
        chosen = self.loads.index(min(self.loads))
        shape = tf.TensorShape(variable.get_attr("shape"))
        self.loads[chosen] += shape.num_elements() * variable.get_attr("dtype").size
        return chosen


class Net(NamedTuple):
    images: tf.Tensor
    labels: tf.Tensor
    loss: tf.Tensor
    update: tf.Operation


def main() -> None:
    parser = cluster.flags(__doc__)
    parser.add_argument("--placement", choices=PLACEMENTS, default="balanced")
    parser.add_argument("--data-dir", type=Path, help=data.FLAG_HELP)
    parser.add_argument("--learning_rate", type=float, default=0.003)
    given = parser.parse_args()
    role = cluster.role(given)
    if role.job == "ps":
        cluster.serve(role)
    examples = data.load("train", given.data_dir)
    if role.is_chief:
        compare(role, given, examples.side)
    server = cluster.server(role)
    with tf.Graph().as_default():
        net = build(given.placement, role, given, examples.side)
        if role.is_chief:
            where = cluster.places(v1.trainable_variables())
            print(f"using {given.placement}: weights on {where}", flush=True)
        hooks = [cluster.Progress(net.loss)]
        with cluster.open_session(server.target, role, given, hooks) as session:
            batches = cluster.batches(examples, role, given)
            while not session.should_stop():
                batch = next(batches)
                session.run(net.update, {net.images: batch.images, net.labels: batch.labels})


def compare(role: cluster.Role, given: argparse.Namespace, side: int) -> None:
    """Print the load of each placement: building the graph is enough to see it."""
    for placement in PLACEMENTS:
        with tf.Graph().as_default():
            build(placement, role, given, side)
            print(f"{placement}: {shares(v1.trainable_variables())}", flush=True)


def build(placement: str, role: cluster.Role, given: argparse.Namespace, side: int) -> Net:
    strategy = None if placement == "round_robin" else LeastLoaded(role.ps)
    # Only whole variables are placed. A variable larger than all others must be sliced first; its
    # slices are saved as one variable.
    cut = v1.variable_axis_size_partitioner(SLICE_BYTES) if placement == "sliced" else None
    with cluster.on_ps(role, strategy), v1.variable_scope("", partitioner=cut):
        images, labels = model.placeholders(side)
        loss = model.loss(model.logits(images), labels)
        step = v1.train.get_or_create_global_step()
        # Its state of a variable, such as Adam's two averages, is stored with that variable.
        optimizer = v1.train.AdamOptimizer(given.learning_rate)
        update = optimizer.minimize(loss, global_step=step)
    v1.summary.scalar("loss", loss)
    return Net(images, labels, loss, update)


def shares(variables: list[tf.Variable]) -> str:
    """Return the bytes of the variables on each task."""
    held: dict[str, int] = {}
    for variable in variables:
        size = variable.shape.num_elements() * variable.dtype.size
        held[variable.device] = held.get(variable.device, 0) + size
    return ", ".join(f"{device} {size:,} bytes" for device, size in sorted(held.items()))


if __name__ == "__main__":
    main()
