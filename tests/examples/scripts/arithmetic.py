"""Compare each algorithm's first batches with its formula in NumPy.

This process runs one ps and two workers, and decides when each worker steps, so the order is fixed.
Run it in the folder of the examples. It prints a JSON document: for each check the largest
difference between a weight and its expected value.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf
from adag.train import Adag
from aeamsgd.train import Aeamsgd
from aeasgd.train import Aeasgd
from cluster import Role, on_ps
from digits import data, model
from downpour.train import Downpour
from dynsgd.train import DynSgd
from hogwild.train import Hogwild
from sagn.train import Sagn
from ssgd.train import Synchronous

v1 = tf.compat.v1
RATE, NET = 0.25, "convolutions"
EXAMPLES = data.load("train")
BATCHES = [EXAMPLES._replace(images=EXAMPLES.images[i : i + 8], labels=EXAMPLES.labels[i : i + 8])
           for i in range(0, 80, 8)]  # fmt: skip


ADDRESSES = sys.argv[1:]  # of a ps, two workers, and a worker without other tasks
CLUSTER = tf.train.ClusterSpec({"ps": ADDRESSES[:1], "worker": ADDRESSES[1:3]})
ALONE = tf.train.ClusterSpec({"worker": ADDRESSES[3:]})
SERVERS = {
    cluster.task_address(job, index): tf.distribute.Server(cluster, job, index)
    for cluster in (CLUSTER, ALONE)
    for job in cluster.jobs
    for index in cluster.task_indices(job)
}


class Worker:
    """A worker with its own graph and session; `build` returns its net."""

    def __init__(self, index, build, initialize, cluster=CLUSTER):
        self.role = Role(cluster, "worker", index)
        with tf.Graph().as_default() as self.graph:
            tf.random.set_seed(1)
            with on_ps(self.role):
                self.net = build(self.role)
            self.globals, self.locals = v1.global_variables(), v1.local_variables()
            self.weights = v1.trainable_variables()
            address = cluster.task_address("worker", index)
            self.session = v1.Session(SERVERS[address].target)
            if initialize:
                self.session.run(v1.global_variables_initializer())
            self.session.run(v1.local_variables_initializer())

    def run(self, what, batch):
        feed = {self.net.images: batch.images, self.net.labels: batch.labels}
        return self.session.run(what, feed)

    def compute(self, batch):
        return self.run(self.net.compute, batch)

    def tasks_of(self, what, batch):
        """Return the tasks that take part when it runs `what`."""
        traced, trace = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), v1.RunMetadata()
        feed = {self.net.images: batch.images, self.net.labels: batch.labels}
        self.session.run(what, feed, options=traced, run_metadata=trace)
        devices = [tf.DeviceSpec.from_string(s.device) for s in trace.step_stats.dev_stats]
        return sorted({(device.job, device.task) for device in devices})

    def communicate(self, batch):
        """Train the last batch of a window; return the global step."""
        if not isinstance(self.net, Downpour):
            return self.run(self.net.communicate, batch)
        step = self.push(batch)
        self.session.run(self.net.fetch)
        return step

    def push(self, batch):
        self.run(self.net.take, batch)
        return self.session.run(self.net.push)

    def central(self):
        return self.session.run(self.weights)

    def own(self):
        return self.session.run(self.net.own)


class Reference:
    """The gradient of the net's loss, for any weights and any batch."""

    def __init__(self):
        self.weights = []
        with tf.Graph().as_default():
            with v1.variable_scope("", custom_getter=self.place):
                self.images, self.labels = model.placeholders(EXAMPLES.side)
                loss = model.loss(model.logits(self.images), self.labels)
            self.gradients = tf.gradients(loss, self.weights)
            self.session = v1.Session()

    def place(self, getter, name, shape, **how):
        self.weights.append(v1.placeholder(tf.float32, shape))
        return self.weights[-1]

    def __call__(self, weights, batch):
        feed = dict(zip(self.weights, weights, strict=True))
        feed |= {self.images: batch.images, self.labels: batch.labels}
        return self.session.run(self.gradients, feed)


gradient = Reference()


def plus(weights, factor, others):
    return [w + factor * o for w, o in zip(weights, others, strict=True)]


def minus(weights, others):
    return plus(weights, -1, others)


def difference(actual, expected):
    return max(float(abs(a - e).max()) for a, e in zip(actual, expected, strict=True))


def workers(kind, **flags):
    """Return both workers, each with a net of that kind."""
    if kind is Downpour:
        window = flags.pop("window", None)
        flags = {"local": "sgd", "n_push": window, "n_fetch": window, **flags}
    given = argparse.Namespace(**{"learning_rate": RATE, "net": NET, **flags})

    def build(role):
        return kind(role, EXAMPLES.side, given)

    return [Worker(index, build, initialize=index == 0) for index in (0, 1)]


def sgd(weights, batches, rate=RATE):
    """Return the weights after plain SGD, and the sum of its gradients."""
    accrued = [np.zeros_like(w) for w in weights]
    for batch in batches:
        g = gradient(weights, batch)
        weights, accrued = plus(weights, -rate, g), plus(accrued, 1, g)
    return weights, accrued


# The checks. Each returns the actual and the expected weights.


def hogwild_is_sgd():
    def build(role):
        return Hogwild(EXAMPLES.side, RATE, NET)

    worker, _ = (Worker(index, build, initialize=index == 0) for index in (0, 1))
    w = worker.central()
    for batch in BATCHES[:3]:
        worker.run(worker.net.step_after, batch)
    # Resource variables, which use "ResourceApply…", are locked even without use_locking.
    updates = [op for op in worker.graph.get_operations() if "Apply" in op.type]
    kinds = [(op.type, op.get_attr("use_locking"), op.device) for op in updates]
    assert kinds == [("ApplyGradientDescent", False, "/job:ps/task:0")] * 6
    return worker.central(), sgd(w, BATCHES[:3])[0]


def downpour_sgd_with_window_1_is_sgd():
    one, _ = workers(Downpour, update="sgd", window=1)
    w = one.central()
    for batch in BATCHES[:3]:
        one.communicate(batch)
    return one.central(), sgd(w, BATCHES[:3])[0]


def downpour_keeps_a_window_to_itself():
    one, _ = workers(Downpour, update="sgd", window=3)
    w = one.central()
    one.compute(BATCHES[0])
    one.compute(BATCHES[1])
    assert difference(one.own(), w) > 1e-3
    return one.central(), w


def downpour_loses_no_push():
    one, two = workers(Downpour, update="sgd", window=2)
    w = one.central()
    one.compute(BATCHES[0])
    two.compute(BATCHES[2])
    two.communicate(BATCHES[3])
    assert one.communicate(BATCHES[1]) == 4
    _, first = sgd(w, BATCHES[:2])
    _, second = sgd(w, BATCHES[2:4])
    assert difference(one.own(), one.central()) == 0
    return one.central(), plus(plus(w, -RATE, second), -RATE, first)


def downpour_forgets_what_it_pushed():
    one, _ = workers(Downpour, update="sgd", window=2)
    w = one.central()
    for batch in BATCHES[0:4:2]:
        one.compute(batch)
        one.communicate(batch)
    return one.central(), sgd(w, [BATCHES[0], BATCHES[0], BATCHES[2], BATCHES[2]])[0]


def downpour_adagrad():
    one, _ = workers(Downpour, update="adagrad", window=2)
    w = one.central()
    one.compute(BATCHES[0])
    one.communicate(BATCHES[1])
    _, a = sgd(w, BATCHES[:2])
    return one.central(), [x - RATE * s / np.sqrt(0.1 + s**2) for x, s in zip(w, a, strict=True)]


def downpour_adagrad_on_the_worker():
    one, _ = workers(Downpour, update="sgd", local="adagrad", n_push=2, n_fetch=2)
    x = one.central()
    squares = [np.full_like(w, 0.1) for w in x]
    for batch in BATCHES[:3]:
        one.compute(batch)
        g = gradient(x, batch)
        squares = [s + a**2 for s, a in zip(squares, g, strict=True)]
        x = [w - RATE * a / np.sqrt(s) for w, a, s in zip(x, g, squares, strict=True)]
    return one.own(), x


def downpour_pushes_and_fetches_separately():
    one, two = workers(Downpour, update="sgd", n_push=1, n_fetch=3)
    w = one.central()
    two.push(BATCHES[2])
    one.push(BATCHES[0])
    one.push(BATCHES[1])
    own, pushed = sgd(w, BATCHES[:2])
    central = plus(plus(w, -RATE, gradient(w, BATCHES[2])), -RATE, pushed)
    actual = one.own() + one.central()
    one.session.run(one.net.fetch)
    return actual + one.own(), own + central + central


def adag_pushes_the_mean():
    one, _ = workers(Adag, window=4)
    w = one.central()
    for batch in BATCHES[:3]:
        one.compute(batch)
    one.communicate(BATCHES[3])
    return one.central(), plus(w, -RATE / 4, sgd(w, BATCHES[:4])[1])


def together(*calls):
    with ThreadPoolExecutor(len(calls)) as threads:
        return [done.result(60) for done in [threads.submit(*call) for call in calls]]


def sagn_applies_the_mean_of_all():
    one, two = workers(Sagn, window=2)
    w = one.central()
    one.compute(BATCHES[0])
    two.compute(BATCHES[2])
    assert together((one.communicate, BATCHES[1]), (two.communicate, BATCHES[3])) == [4, 4]
    _, first = sgd(w, BATCHES[:2])
    _, second = sgd(w, BATCHES[2:4])
    assert difference(two.own(), one.central()) == 0
    return one.central(), plus(plus(w, -RATE / 4, first), -RATE / 4, second)


def ssgd_with_differing_rates():
    rates = (0.3, 0.1)

    def build(role):
        return Synchronous(role, EXAMPLES.side, rates[role.index], NET)

    one, two = (Worker(index, build, initialize=index == 0) for index in (0, 1))
    expected = one.central()
    for own, others in (BATCHES[0:2], BATCHES[2:4], BATCHES[4:6]):
        together((one.run, one.net.step_after, own), (two.run, two.net.step_after, others))
        mine, theirs = gradient(expected, own), gradient(expected, others)
        expected = plus(plus(expected, -0.3 / 2, mine), -0.1 / 2, theirs)
    return one.central(), expected


def one_worker_alone_needs_no_ps():
    def synchronous(role):
        return Synchronous(role, EXAMPLES.side, RATE, NET)

    alone = Worker(0, synchronous, initialize=True, cluster=ALONE)
    w = alone.central()
    assert [alone.run(alone.net.step_after, batch) for batch in BATCHES[:3]] == [1, 2, 3]
    return alone.central(), sgd(w, BATCHES[:3])[0]


def dynsgd_divides_by_staleness():
    one, two = workers(DynSgd, window=1)
    w = one.central()
    two.communicate(BATCHES[1])
    two.communicate(BATCHES[2])
    after, _ = sgd(w, BATCHES[1:3])  # The second worker was never stale.
    one.communicate(BATCHES[0])
    return one.central(), plus(after, -RATE / 3, gradient(w, BATCHES[0]))


def dynsgd_counts_none_of_its_own():
    one, _ = workers(DynSgd, window=1)
    w = one.central()
    for batch in BATCHES[:3]:
        one.communicate(batch)
    return one.central(), sgd(w, BATCHES[:3])[0]


def elastic(x, c, alpha=0.25):
    e = [alpha * d for d in minus(x, c)]
    return minus(x, e), plus(c, 1, e)


def aeasgd_moves_both_ends():
    one, two = workers(Aeasgd, window=2, alpha=0.25)
    c = one.central()
    one.compute(BATCHES[0])
    one.communicate(BATCHES[1])
    two.communicate(BATCHES[2])
    x, c1 = elastic(sgd(c, BATCHES[:2])[0], c)
    y, c2 = elastic(sgd(c, BATCHES[2:3])[0], c1)
    return one.own() + two.own() + one.central(), x + y + c2


def aeamsgd_rolls_on():
    one, _ = workers(Aeamsgd, window=3, alpha=0.25, momentum=0.9)
    x = c = one.central()
    v = [np.zeros_like(w) for w in x]
    for number, batch in enumerate(BATCHES[:6], start=1):
        (one.compute if number % 3 else one.communicate)(batch)
        v = plus([0.9 * a for a in v], -RATE, gradient(plus(x, 0.9, v), batch))
        x = plus(x, 1, v)
        if number % 3 == 0:
            x, c = elastic(x, c)
    return one.own() + one.central(), x + c


def a_copy_begins_where_the_central_weights_are():
    one, _ = workers(Downpour, update="sgd", window=1)
    one.communicate(BATCHES[0])
    given = argparse.Namespace(learning_rate=RATE, net=NET, window=1)
    late = Worker(1, lambda role: Adag(role, EXAMPLES.side, given), initialize=False)
    return late.own(), one.central()


def places():
    """Return which variables are saved, and the devices of the saved and the local variables."""
    variables = {}
    for algorithm, how in {
        Downpour: {"update": "adagrad"}, Adag: {}, Sagn: {}, DynSgd: {}, Aeasgd: {"alpha": 0.5},
        Aeamsgd: {"alpha": 0.5, "momentum": 0.9},
    }.items():  # fmt: skip
        one, _ = workers(algorithm, window=2, **how)
        variables[algorithm.__name__.lower()] = {
            "saved": sorted(v.op.name for v in one.globals),
            "saved on": sorted({v.device for v in one.globals}),
            "not saved": sorted({v.op.name.split("/")[0] for v in one.locals}),
            "not saved on": sorted({v.device for v in one.locals}),
            "takes part within a window": one.tasks_of(one.net.compute, BATCHES[0]),
        }
    return variables


CHECKS = [
    hogwild_is_sgd, downpour_sgd_with_window_1_is_sgd, downpour_keeps_a_window_to_itself,
    downpour_loses_no_push, downpour_forgets_what_it_pushed, downpour_adagrad,
    downpour_adagrad_on_the_worker, downpour_pushes_and_fetches_separately,
    adag_pushes_the_mean, sagn_applies_the_mean_of_all, ssgd_with_differing_rates,
    one_worker_alone_needs_no_ps,
    dynsgd_divides_by_staleness, dynsgd_counts_none_of_its_own, aeasgd_moves_both_ends,
    aeamsgd_rolls_on, a_copy_begins_where_the_central_weights_are,
]  # fmt: skip

if __name__ == "__main__":
    answer = {"differences": {check.__name__: difference(*check()) for check in CHECKS}}
    answer["places"] = places()
    print(json.dumps(answer), flush=True)
    os._exit(0)  # The servers in this process never end by themselves.
