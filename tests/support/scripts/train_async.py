"""Asynchronous training, compat.v1: ps tasks store the weights, each worker trains on its own."""

import argparse
import time

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
SLOPES = np.array([[2.0], [-3.0], [0.5]], np.float32)


parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
parser.add_argument("--job_name", choices=("ps", "worker"), required=True)
parser.add_argument("--task_index", type=int, required=True)
parser.add_argument("--ps_hosts", type=lambda text: text.split(","), required=True)
parser.add_argument("--worker_hosts", type=lambda text: text.split(","), required=True)
parser.add_argument("--checkpoint_dir", default="checkpoints")
parser.add_argument("--steps", type=int, default=1000, help="of all workers together")
parser.add_argument("--save_steps", type=int, default=40)
parser.add_argument("--pace", type=float, default=0.1, help="seconds of sleep in each step")
flags = parser.parse_args()


def train_op(step):
    x = tf.random.normal([32, len(SLOPES)])
    weights = v1.get_variable("weights", SLOPES.shape, initializer=v1.zeros_initializer())
    loss = tf.reduce_mean((x @ weights - x @ SLOPES) ** 2)
    v1.summary.scalar("loss", loss)
    return v1.train.GradientDescentOptimizer(0.002).minimize(loss, global_step=step), loss


class PrintRestoredStep(v1.train.SessionRunHook):
    """Prints the step that a session resumes from; a restarted ps leads to a new session."""

    def __init__(self, step, saved):
        self.step, self.saved = step, saved

    def after_create_session(self, session, coord):
        if self.saved:
            print("restored step", session.run(self.step), flush=True)
        self.saved = True


class PromptWorker(v1.train.SessionCreator):
    """Checks every second for initialized variables; MonitoredTrainingSession does every 30 s."""

    def __init__(self, target, config):
        self.target, self.config = target, config
        ready = v1.report_uninitialized_variables()
        self.manager = v1.train.SessionManager(ready_op=ready, recovery_wait_secs=1)

    def create_session(self):
        return self.manager.wait_for_session(self.target, self.config)


def open_session(target, config, step):
    stop = v1.train.StopAtStepHook(last_step=flags.steps)
    if flags.task_index != 0:
        return v1.train.MonitoredSession(PromptWorker(target, config), [stop])
    return v1.train.MonitoredTrainingSession(
        target,
        checkpoint_dir=flags.checkpoint_dir,
        hooks=[stop, PrintRestoredStep(step, tf.train.latest_checkpoint(flags.checkpoint_dir))],
        save_checkpoint_steps=flags.save_steps,
        save_summaries_steps=10,
        config=config,
    )


own_device = f"/job:{flags.job_name}/task:{flags.task_index}"
cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts, "worker": flags.worker_hosts})
config = v1.ConfigProto(
    device_filters=["/job:ps", own_device] if flags.job_name == "worker" else []
)
server = tf.distribute.Server(cluster, flags.job_name, flags.task_index, config=config)
if flags.job_name == "ps":
    server.join()
placement = v1.train.replica_device_setter(cluster=cluster, worker_device=own_device)
with tf.Graph().as_default(), v1.device(placement):
    step = v1.train.get_or_create_global_step()
    update = train_op(step)
    printed_at = 0.0
    with open_session(server.target, config, step) as session:
        while not session.should_stop():
            (_, loss), now = session.run([update, step])
            if time.monotonic() > printed_at + 0.3:
                printed_at = time.monotonic()
                print(f"step {now} loss {loss:.4f}", flush=True)
            time.sleep(flags.pace)
print(f"step {now} is the last", flush=True)
