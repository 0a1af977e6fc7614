"""A cluster of one process: the variables are in the server, and all sessions share them."""

from __future__ import annotations

import tensorflow as tf

v1 = tf.compat.v1


def main() -> None:
    server = tf.distribute.Server.create_local_server()
    print(f"the server listens at {server.target}", flush=True)
    with tf.Graph().as_default():
        counter = v1.get_variable("counter", [], tf.int64, v1.zeros_initializer())
        count = counter.assign_add(1)
        begin = v1.global_variables_initializer()

        with v1.Session(server.target) as first:
            print(f"its devices: {names(first)}", flush=True)
            first.run(begin)
            print(f"the first session counts to {times(3, first, count)}", flush=True)
        with v1.Session(server.target) as second:
            print(f"the second continues and counts to {times(3, second, count)}", flush=True)

        # Without a target a session has its own variables, which end with it.
        with v1.Session() as alone:
            print(f"its devices: {names(alone)}", flush=True)
            alone.run(begin)
            print(f"a session without a server counts to {times(3, alone, count)}", flush=True)
        with v1.Session() as next_one:
            there = next_one.run(v1.is_variable_initialized(counter))
            print(f"and leaves {'it' if there else 'nothing'} to the next session", flush=True)


def names(session: v1.Session) -> str:
    return ", ".join(device.name for device in session.list_devices())


def times(number: int, session: v1.Session, op: tf.Tensor) -> int:
    return [int(session.run(op)) for _ in range(number)][-1]


if __name__ == "__main__":
    main()
