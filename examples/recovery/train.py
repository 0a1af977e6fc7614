"""Recovery: the ps is killed, restarted empty, and the workers' sessions recover by themselves."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import cluster
import tensorflow as tf
from digits import data, model

if TYPE_CHECKING:
    import argparse

v1 = tf.compat.v1
MARK = "ps-was-killed"  # in the ps's folder, which a restarted ps finds again


def main() -> None:
    parser = cluster.flags(__doc__)
    add = parser.add_argument
    add("--data-dir", type=Path, help=data.FLAG_HELP)
    add("--learning_rate", type=float, default=0.003)
    add("--kill_at", type=int, default=250, help="the step at which the ps is killed; 0: never")
    parser.set_defaults(save_steps=100)
    given = parser.parse_args()
    role = cluster.role(given)
    if role.job == "ps":
        serve(role, given.kill_at, Path(given.checkpoint_dir) / MARK)
    else:
        train(role, given)


def serve(role: cluster.Role, kill_at: int, mark: Path) -> None:
    server = tf.distribute.Server(role.cluster, role.job, role.index)
    if kill_at and role.index == 0 and not mark.exists():
        wait_for_step(server.target, kill_at)
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
        print(f"killed at step {kill_at}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does if the memory is used up
    server.join()


def wait_for_step(target: str, step: int) -> None:
    """Wait until the workers have trained so far: a ps can read its own variables, too."""
    with tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            shared = v1.train.get_or_create_global_step()
        # Reading a variable that is not initialized yet is an error.
        initialized = v1.is_variable_initialized(shared)
        config = v1.ConfigProto(device_filters=["/job:ps/task:0"])
        with v1.Session(target, config=config) as session:
            while not session.run(initialized) or session.run(shared) < step:
                time.sleep(0.05)


class Recoveries(v1.train.SessionRunHook):
    """Print at which step each session starts, and for how long no step was made before it."""

    def __init__(self) -> None:
        self.sessions, self.worked = 0, time.monotonic()
        self.step = v1.train.get_global_step()

    def after_create_session(self, session: v1.Session, coord: tf.train.Coordinator) -> None:
        self.sessions += 1
        paused = f", {time.monotonic() - self.worked:.1f} s after the last one failed"
        print(
            f"session {self.sessions} starts at step {session.run(self.step)}"
            f"{paused if self.sessions > 1 else ''}",
            flush=True,
        )

    def after_run(self, *_: object) -> None:
        self.worked = time.monotonic()


def train(role: cluster.Role, given: argparse.Namespace) -> None:
    server = cluster.server(role)
    examples = data.load("train", given.data_dir)
    with tf.Graph().as_default():
        with cluster.on_ps(role):
            images, labels = model.placeholders(examples.side)
            loss = model.loss(model.logits(images), labels)
            step = v1.train.get_or_create_global_step()
            update = v1.train.AdamOptimizer(given.learning_rate).minimize(loss, global_step=step)
        v1.summary.scalar("loss", loss)
        hooks = [Recoveries(), cluster.Progress(loss)]
        with cluster.open_session(server.target, role, given, hooks) as session:
            batches = data.batches(examples, given.batch_size, seed=role.index)
            while not session.should_stop():
                batch = next(batches)
                # If the ps is lost, this call creates another session, and runs in that one.
                session.run(update, {images: batch.images, labels: batch.labels})


if __name__ == "__main__":
    main()
