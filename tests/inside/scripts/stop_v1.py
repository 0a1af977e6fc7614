"""Train in a session without a cluster until SIGTERM: each function is another training loop."""

import gc
import os
import signal
import sys
import threading
import time

import tensorflow as tf

tf1 = tf.compat.v1
tf1.disable_eager_execution()

step = tf1.train.get_or_create_global_step()
weight = tf1.get_variable("weight", initializer=0.0)
with tf1.control_dependencies([weight.assign_add(1.0)]):
    train = step.assign_add(1)


def hang():
    print("in the step", flush=True)
    time.sleep(3600)


never = tf1.py_func(hang, [], [])


def new_session():
    return tf1.train.MonitoredTrainingSession(
        checkpoint_dir="checkpoints", save_checkpoint_steps=10**9
    )


def report_step(session):
    print("trained to", session.run(train), flush=True)


def asks_should_stop():
    with new_session() as session:
        report_step(session)
        while not session.should_stop():
            session.run(train)


def never_asks():
    with new_session() as session:
        report_step(session)
        while True:
            session.run(train)


def two_runs_a_turn():
    with new_session() as session:
        report_step(session)
        while not session.should_stop():
            session.run(train)
            os.kill(os.getpid(), signal.SIGTERM)
            session.run(weight)


def by_step_functions():
    with new_session() as session:
        report_step(session)
        while not session.should_stop():
            session.run_step_fn(lambda step_context: step_context.run_with_hooks(train))


def without_with():
    session = new_session()
    report_step(session)
    while not session.should_stop():
        session.run(train)
    session.close()


def two_sessions():
    with new_session() as session:
        with tf1.Graph().as_default():
            tf1.train.MonitoredSession().close()
        report_step(session)
        while not session.should_stop():
            session.run(train)


def hangs():
    with new_session() as session:
        report_step(session)
        session.run(never)


def has_its_own_handler():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    asks_should_stop()


def gets_its_own_handler():
    with new_session() as session:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
        report_step(session)
        while not session.should_stop():
            session.run(train)


def has_no_session_yet():
    print("trained to nothing", flush=True)
    time.sleep(3600)


def has_no_session_any_more():
    with new_session() as session:
        report_step(session)
    print("the session ended", flush=True)
    time.sleep(3600)


def lost_its_session():
    new_session().run(train)
    gc.collect()
    print("trained to nothing", flush=True)
    time.sleep(3600)


def in_a_thread():
    graph = tf1.get_default_graph()

    def train_in_graph():
        with graph.as_default():
            asks_should_stop()

    thread = threading.Thread(target=train_in_graph)
    thread.start()
    thread.join()


def with_a_child():
    with new_session() as session:
        session.run(train)
        ends = set()
        for _ in range(50):  # stopped before they are ready
            child = os.fork()
            if child == 0:
                time.sleep(3600)
            os.kill(child, signal.SIGTERM)
            ends.add(os.waitpid(child, 0)[1])
        print("the children ended by", ends, flush=True)
        report_step(session)
        while not session.should_stop():
            session.run(train)


globals()[sys.argv[1]]()
print("ended normally at", time.time(), flush=True)
