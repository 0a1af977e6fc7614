"""Two workers that share variables: one reads what the other one assigns."""

from __future__ import annotations

import time
from typing import NamedTuple

import cluster
import tensorflow as tf

v1 = tf.compat.v1


class Shared(NamedTuple):
    on_ps: tf.Variable
    on_worker_0: tf.Variable
    on_worker_1: tf.Variable


def main() -> None:
    role = cluster.role(cluster.flags(__doc__).parse_args())
    if role.job == "ps":
        cluster.serve(role)
        return
    # Without device filters: a worker's session must see the other worker too.
    server = tf.distribute.Server(role.cluster, role.job, role.index)
    with tf.Graph().as_default(), v1.Session(server.target) as session:
        shared = build()
        if role.is_chief:
            begin(session, shared)
        else:
            answer(session, shared)


def build() -> Shared:
    """Build the variables. Both workers do, and share them: device and name identify a variable."""
    return Shared(
        variable("on_ps", "/job:ps/task:0"),
        variable("on_worker_0", "/job:worker/task:0"),
        variable("on_worker_1", "/job:worker/task:1"),
    )


def variable(name: str, device: str) -> tf.Variable:
    with tf.device(device):
        return v1.get_variable(name, [], tf.int64, v1.zeros_initializer())


def begin(session: v1.Session, shared: Shared) -> None:
    session.run(v1.global_variables_initializer())
    assign(session, shared.on_ps, 41)
    assign(session, shared.on_worker_1, 42)
    await_value(session, shared.on_worker_0, 43)
    print("ended: each has read what the other one assigned", flush=True)


def answer(session: v1.Session, shared: Shared) -> None:
    await_value(session, shared.on_worker_1, 42)
    await_value(session, shared.on_ps, 41)
    # Variables on this worker end with it, so the last value goes to the other worker.
    assign(session, shared.on_worker_0, 43)
    print("ended", flush=True)


def assign(session: v1.Session, variable: tf.Variable, value: int) -> None:
    session.run(variable.assign(value))
    print(f"assigned {value} to {variable.op.name}, on {variable.device}", flush=True)


def await_value(session: v1.Session, variable: tf.Variable, value: int) -> None:
    """Poll until the variable has the value; there is no notification of a change."""
    # Reading a variable that is not initialized yet is an error.
    initialized = v1.is_variable_initialized(variable)
    while not session.run(initialized) or session.run(variable) != value:
        time.sleep(0.1)
    print(f"read {value} from {variable.op.name}, on {variable.device}", flush=True)


if __name__ == "__main__":
    main()
