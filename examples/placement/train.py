"""Placement by hand: each variable on a given ps, each op on a given worker."""

from __future__ import annotations

from typing import NamedTuple

import cluster
import tensorflow as tf

v1 = tf.compat.v1
SLOPES, OFFSET = [[2.0], [-3.0], [0.5]], 1.0  # the line to find


def main() -> None:
    given = cluster.flags(__doc__).parse_args()
    role = cluster.role(given)
    if role.job == "ps":
        cluster.serve(role)
        return
    # Without device filters, because worker 0 sends work to worker 1.
    server = tf.distribute.Server(role.cluster, role.job, role.index)
    if role.is_chief:
        drive(server.target, given.steps)
    else:
        server.join()  # It computes what it receives, until it is stopped.


class Line(NamedTuple):
    slopes: tf.Variable
    offset: tf.Variable
    loss: tf.Tensor
    update: tf.Operation


def build() -> Line:
    with tf.device("/job:ps/task:0"):
        slopes = v1.get_variable("slopes", [3, 1], initializer=v1.zeros_initializer())
    with tf.device("/job:ps/task:1"):
        offset = v1.get_variable("offset", [1], initializer=v1.zeros_initializer())
    with tf.device("/job:worker/task:1"):
        x = tf.random.normal([64, 3])
        y = tf.matmul(x, slopes, name="product") + offset
        loss = tf.reduce_mean((y - (x @ SLOPES + OFFSET)) ** 2, name="loss")
        gradients = tf.gradients(loss, [slopes, offset])
    # An optimizer places each update on the variable's device, whatever the scope is.
    optimizer = v1.train.GradientDescentOptimizer(0.05)
    update = optimizer.apply_gradients(zip(gradients, [slopes, offset], strict=True))
    return Line(slopes, offset, loss, update)


def drive(target: str, steps: int) -> None:
    with tf.Graph().as_default(), v1.Session(target) as session:
        line = build()
        for variable in (line.slopes, line.offset):
            print(f"{variable.op.name} is on {variable.device}", flush=True)
        session.run(v1.global_variables_initializer())
        for step in range(steps):
            _, loss = session.run([line.update, line.loss])
            if step % 50 == 0:
                print(f"step {step} loss {loss:.4f}", flush=True)
        for device, kinds in where_it_ran(session, line.update).items():
            print(f"{device} ran {', '.join(kinds)}", flush=True)
        print(f"ended with slopes {session.run(line.slopes).ravel().round(3)}", flush=True)


def where_it_ran(session: v1.Session, op: tf.Operation) -> dict[str, list[str]]:
    """Return the kinds of ops that each task ran, as TensorFlow traced them, not as requested."""
    trace = v1.RunMetadata()
    session.run(op, options=v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), run_metadata=trace)
    kinds = {made.name: made.type for made in session.graph.get_operations()}
    return {
        stats.device: sorted({kinds[n.node_name] for n in stats.node_stats if n.node_name in kinds})
        for stats in sorted(trace.step_stats.dev_stats, key=lambda stats: stats.device)
    }


if __name__ == "__main__":
    main()
