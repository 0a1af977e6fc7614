"""One task of the clusters that tests/bench/saving.py measures: python saving_task.py v1|tf2.

BENCH_VARIABLES_MB has the size of each variable; they are spread over the ps. The chief prints a
line before each phase, waits for a line from the benchmark, and prints what the phase took.
"""

import json
import os
import sys
import threading
import time

import tensorflow as tf

SIZES_MB = [int(size) for size in os.environ["BENCH_VARIABLES_MB"].split(",")]
FOLDER = os.environ["BENCH_FOLDER"]
OPTIONS = json.loads(os.environ.get("BENCH_OPTIONS", "{}"))
SAVES = int(os.environ.get("BENCH_SAVES", "2"))
PAUSE_S = 0.02  # between two steps
CLUSTER = json.loads(os.environ["TF_CONFIG"])["cluster"]
TASK = json.loads(os.environ["TF_CONFIG"])["task"]
ROWS = 1024  # of each MB: 256 floats are 1 KiB

if "BENCH_PIECE_MB" in os.environ:
    import tfdeploy_pieces

    tfdeploy_pieces.PIECE = int(os.environ["BENCH_PIECE_MB"]) << 20


class Steps:
    """Seconds of each step, with the second at which it ended."""

    def __init__(self):
        self.taken = []

    def run(self, step):
        started = time.monotonic()
        step()
        self.taken.append((time.monotonic() - started, started))
        time.sleep(PAUSE_S)

    def held(self, since):
        """Return how much longer than the median the longest step since then took."""
        taken = sorted(seconds for seconds, started in self.taken if started >= since)
        return taken[-1] - taken[len(taken) // 2] if taken else 0.0


def phase(name, work):
    print("ready", name, flush=True)
    sys.stdin.readline()
    print("result", json.dumps(work()), flush=True)


def v1():
    tf1 = tf.compat.v1
    tf1.disable_eager_execution()
    config = tf1.ConfigProto(device_filters=["/job:ps", f"/job:{TASK['type']}"])
    server = tf1.train.Server(
        CLUSTER, job_name=TASK["type"], task_index=TASK["index"], config=config
    )
    if TASK["type"] == "ps":
        server.join()
    me = f"/job:worker/task:{TASK['index']}"
    with tf1.device(tf1.train.replica_device_setter(cluster=CLUSTER, worker_device=me)):
        number = tf1.train.get_or_create_global_step()
        tables = [
            tf1.get_variable(f"table{i}", [size * ROWS, 256], initializer=tf1.ones_initializer())
            for i, size in enumerate(SIZES_MB)
        ]
        # A sparse step, as with embeddings: it touches one row of each variable.
        rows = [table.scatter_add(tf.IndexedSlices(tf.ones([1, 256]), [0])) for table in tables]
        with tf1.control_dependencies(rows):
            train = number.assign_add(1)
    chief = TASK["index"] == 0
    with tf1.train.MonitoredTrainingSession(
        master=server.target,
        is_chief=chief,
        checkpoint_dir=None,  # no save before the first phase
        save_summaries_steps=None,
        save_summaries_secs=None,
        log_step_count_steps=None,
        config=tf1.ConfigProto(device_filters=["/job:ps", me]),
    ) as session:
        steps = Steps()
        if not chief:
            beside(steps, lambda: session.run(train))
            return
        saver = tf1.get_collection(tf1.GraphKeys.SAVERS)[0]

        def save():
            session.run_step_fn(
                lambda step_context: saver.save(
                    step_context.session, f"{FOLDER}/model", global_step=1
                )
            )

        def restore():
            session.run_step_fn(
                lambda step_context: saver.restore(step_context.session, f"{FOLDER}/model-1")
            )

        for _ in range(SAVES):
            phase("save", lambda: timed(save))
        phase("restore", lambda: timed(restore))


def timed(work, steps=None):
    if steps is not None:
        time.sleep(1.0)
    started = time.monotonic()
    work()
    seconds = time.monotonic() - started
    time.sleep(0.2)
    return {"seconds": seconds, "held": seconds if steps is None else steps.held(started)}


def beside(steps, step):
    """Run steps until the benchmark closes our input; answer each line with the longest one."""
    since = [time.monotonic()]
    done = threading.Event()

    def answer():
        for _ in sys.stdin:
            print("held", steps.held(since[0]), flush=True)
            since[0] = time.monotonic()
        done.set()

    threading.Thread(target=answer, daemon=True).start()
    while not done.is_set():
        steps.run(step)


def tf2():
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if TASK["type"] != "chief":
        tf.distribute.Server(
            CLUSTER, job_name=TASK["type"], task_index=TASK["index"], protocol="grpc"
        ).join()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        # Filled where they are: an initial value of the chief would be sent.
        tables = [tf.Variable(lambda s=size: tf.ones([s * ROWS, 256])) for size in SIZES_MB]
    checkpoint = tf.train.Checkpoint(tables=tables)

    @tf.function
    def train():
        for table in tables:
            table.scatter_add(tf.IndexedSlices(tf.ones([1, 256]), [0]))

    steps = Steps()
    done = threading.Event()

    def training():
        while not done.is_set():
            steps.run(lambda: coordinator.schedule(train).fetch())

    trainer = threading.Thread(target=training)
    trainer.start()
    options = tf.train.CheckpointOptions(**OPTIONS)
    for _ in range(SAVES):
        phase("save", lambda: timed(lambda: checkpoint.write(f"{FOLDER}/ckpt", options), steps))
    if OPTIONS.get("enable_async"):
        phase("sync", lambda: timed(checkpoint.sync, steps))
    done.set()
    trainer.join()
    phase("restore", lambda: timed(lambda: checkpoint.read(f"{FOLDER}/ckpt", options)))


{"v1": v1, "tf2": tf2}[sys.argv[1]]()
os._exit(0)
