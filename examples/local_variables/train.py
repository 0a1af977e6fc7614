"""Local, then global: a worker counts in its own variable, then adds it to the shared one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import cluster
import tensorflow as tf

if TYPE_CHECKING:
    import argparse

v1 = tf.compat.v1


def main() -> None:
    parser = cluster.flags(__doc__, steps="of all workers together: a hand-over counts 1")
    parser.set_defaults(steps=200)
    parser.add_argument("--local_steps", type=int, default=5, help="before each of the steps")
    given = parser.parse_args()
    role = cluster.role(given)
    if role.job == "ps":
        cluster.serve(role)
    else:
        work(role, given)


class Counters(NamedTuple):
    local: tf.Variable
    total: tf.Variable
    count: tf.Tensor  # adds one to local, without contact to the ps
    hand_over: tf.Tensor  # adds local to total, returns total and sets local to 0: that is a step


def build(role: cluster.Role) -> Counters:
    with tf.device(role.device):
        # Each worker initializes its own; no other task sees it, and no checkpoint contains it.
        local = v1.get_local_variable("local", [], tf.int64, v1.zeros_initializer())
    with tf.device("/job:ps/task:0"):
        total = v1.get_variable("total", [], tf.int64, v1.zeros_initializer())
        step = v1.train.get_or_create_global_step()
    # The ps adds, one after the other. If each worker read, added and assigned by itself, the
    # other worker's additions in between would be lost.
    with tf.control_dependencies([total.assign_add(local)]):
        done = [local.assign(0), step.assign_add(1)]
    with tf.control_dependencies(done):
        hand_over = total.read_value()
    return Counters(local, total, local.assign_add(1), hand_over)


def work(role: cluster.Role, given: argparse.Namespace) -> None:
    server = cluster.server(role)
    with tf.Graph().as_default():
        counters = build(role)
        for variable in (counters.local, counters.total):
            print(f"{variable.op.name} is on {variable.device}", flush=True)
        at_the_end = v1.train.FinalOpsHook(counters.total)
        with cluster.open_session(server.target, role, given, [at_the_end]) as session:
            run_steps(session, counters, role, given)
    print(f"ended with a total of {at_the_end.final_ops_values}", flush=True)


def run_steps(
    session: v1.train.MonitoredSession,
    counters: Counters,
    role: cluster.Role,
    given: argparse.Namespace,
) -> None:
    for step in range(role.index, given.steps, role.workers):  # This worker's share of the steps.
        for _ in range(given.local_steps):
            local = session.run(counters.count)
        total = session.run(counters.hand_over)
        if step % 40 == role.index:
            print(f"added {local}, the total is {total}", flush=True)
    while not session.should_stop():  # Wait until all workers together have made all steps.
        time.sleep(0.1)
        session.run(counters.local)


if __name__ == "__main__":
    main()
