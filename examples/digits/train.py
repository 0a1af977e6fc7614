"""Asynchronous data-parallel training: ps tasks hold the weights, each worker pushes gradients."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import data
import model
import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Iterator

v1 = tf.compat.v1
# MonitoredTrainingSession warns if two reads of the step are equal. Here that is no fault: it reads
# the step before or after this worker's own update.
v1.logging.set_verbosity(v1.logging.ERROR)


def main() -> None:
    flags = parse_flags()
    cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts, "worker": flags.worker_hosts})
    if flags.job_name == "ps":
        serve(cluster, flags)
    else:
        train(cluster, flags)


def parse_flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--job_name", choices=("ps", "worker"), required=True)
    add("--task_index", type=int, required=True)
    add("--ps_hosts", type=comma_list, required=True, help="host:port,host:port")
    add("--worker_hosts", type=comma_list, required=True, help="the first is the chief")
    add("--checkpoint_dir", default="checkpoints")
    add("--steps", type=int, default=600, help="of all workers together")
    add("--batch_size", type=int, default=128, help="of each worker")
    add("--learning_rate", type=float, default=0.003)
    add("--save_steps", type=int, default=200, help="steps between two checkpoints")
    add("--data-dir", type=Path, help=data.FLAG_HELP)
    flags = parser.parse_args()
    tasks = flags.ps_hosts if flags.job_name == "ps" else flags.worker_hosts
    if not 0 <= flags.task_index < len(tasks):
        parser.error(
            f"--task_index={flags.task_index}, but {flags.job_name}_hosts names {len(tasks)}"
        )
    return flags


def comma_list(text: str) -> list[str]:
    return text.split(",")


def serve(cluster: tf.train.ClusterSpec, flags: argparse.Namespace) -> None:
    """Hold variables until this process is stopped: a ps does not learn that training is over."""
    no_gpu = v1.ConfigProto(device_count={"GPU": 0})
    tf.distribute.Server(cluster, "ps", flags.task_index, config=no_gpu).join()


def train(cluster: tf.train.ClusterSpec, flags: argparse.Namespace) -> None:
    examples = load_examples(flags.data_dir)
    config = session_config(flags.task_index)
    server = tf.distribute.Server(cluster, "worker", flags.task_index, config=config)
    with tf.Graph().as_default():
        placement = v1.train.replica_device_setter(
            cluster=cluster, worker_device=f"/job:worker/task:{flags.task_index}"
        )
        with v1.device(placement):
            graph = Graph(examples.side, flags.learning_rate)
        with open_session(server.target, config, flags) as session:
            batches = data.batches(examples, flags.batch_size, seed=flags.task_index)
            run_steps(session, graph, batches)


def load_examples(data_dir: Path | None) -> data.Examples:
    try:
        return data.load("train", data_dir)
    except data.DataError as error:
        sys.exit(f"train.py: {error}")


def session_config(task_index: int) -> v1.ConfigProto:
    """Return a session configuration that sees only the ps and this worker.

    Without these filters a session waits until every worker answers: a late worker would wait
    forever if another one has already finished.
    """
    config = v1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{task_index}"])
    config.gpu_options.allow_growth = True
    return config


class Graph:
    """What one worker computes in a step. The variables are on the ps, the work on this worker."""

    def __init__(self, side: int, learning_rate: float) -> None:
        self.images, self.labels = model.placeholders(side)
        outputs = model.logits(self.images)
        self.loss = model.loss(outputs, self.labels)
        self.step = v1.train.get_or_create_global_step()
        optimizer = v1.train.AdamOptimizer(learning_rate)
        self.update = optimizer.minimize(self.loss, global_step=self.step)
        v1.summary.scalar("loss", self.loss)
        v1.summary.scalar("batch_accuracy", model.accuracy(outputs, self.labels))


def open_session(
    target: str, config: v1.ConfigProto, flags: argparse.Namespace
) -> v1.train.MonitoredSession:
    """Open a session. The chief initializes or restores the variables and saves; others wait."""
    # The hook reads the global step, which all workers share, so each worker stops by itself.
    hooks = [v1.train.StopAtStepHook(last_step=flags.steps)]
    if flags.task_index != 0:
        return v1.train.MonitoredSession(PromptWorker(target, config), hooks)
    return v1.train.MonitoredTrainingSession(
        target,
        checkpoint_dir=flags.checkpoint_dir,
        hooks=hooks,
        save_checkpoint_steps=flags.save_steps,
        save_summaries_steps=50,
        config=config,
    )


class PromptWorker(v1.train.SessionCreator):
    """Check every second whether the chief has initialized the variables.

    MonitoredTrainingSession checks every 30 s; a short training is over by then.
    """

    def __init__(self, target: str, config: v1.ConfigProto) -> None:
        self.target, self.config = target, config

    def create_session(self) -> v1.Session:
        scaffold = v1.train.Scaffold().finalize()
        manager = v1.train.SessionManager(
            local_init_op=scaffold.local_init_op,
            ready_op=scaffold.ready_op,
            ready_for_local_init_op=scaffold.ready_for_local_init_op,
            recovery_wait_secs=1,
        )
        return manager.wait_for_session(self.target, self.config)


def run_steps(
    session: v1.train.MonitoredSession, graph: Graph, batches: Iterator[data.Examples]
) -> None:
    started, own, reported = time.monotonic(), 0, -1
    while not session.should_stop():
        batch = next(batches)
        _, step, loss = session.run(
            [graph.update, graph.step, graph.loss],
            {graph.images: batch.images, graph.labels: batch.labels},
        )
        own += 1
        if step // 100 > reported:
            print(f"step {step} loss {loss:.3f}", flush=True)
            reported = step // 100
    took = time.monotonic() - started
    print(f"stopped at step {step} in {took:.1f} s, own steps: {own}", flush=True)


if __name__ == "__main__":
    main()
