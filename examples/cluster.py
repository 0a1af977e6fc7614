"""What every between-graph script does around its own idea: flags, a server, and a session.

Between-graph: each worker builds a graph of its own, and they meet in variables that the ps hold.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import tensorflow as tf

v1 = tf.compat.v1


class Role(NamedTuple):
    """Which task this process is, and of which cluster."""

    cluster: tf.train.ClusterSpec
    job: str
    index: int

    @property
    def is_chief(self) -> bool:
        """The first worker: it initializes or restores the variables, and saves them."""
        return self.job == "worker" and self.index == 0

    @property
    def workers(self) -> int:
        return self.cluster.num_tasks("worker")

    @property
    def device(self) -> str:
        return f"/job:worker/task:{self.index}"


def flags(description: str) -> argparse.ArgumentParser:
    """The flags that all of these scripts have; a script adds its own."""
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    add = parser.add_argument
    add("--job_name", choices=("ps", "worker", "evaluator"), required=True)
    add("--task_index", type=int, required=True)
    add("--ps_hosts", required=True, help="host:port,host:port")
    add("--worker_hosts", required=True, help="the first one is the chief")
    add("--checkpoint_dir", default="checkpoints")
    add("--steps", type=int, default=600, help="of all workers together")
    add("--batch_size", type=int, default=64, help="of each worker")
    add("--save_steps", type=int, default=200, help="a checkpoint after every so many steps")
    return parser


def role(given: argparse.Namespace) -> Role:
    jobs = {"ps": given.ps_hosts.split(","), "worker": given.worker_hosts.split(",")}
    return Role(tf.train.ClusterSpec(jobs), given.job_name, given.task_index)


def config(role: Role) -> v1.ConfigProto:
    """See the ps tasks and oneself only.

    Without these filters a session waits for every worker to answer: one that comes late, when
    another has already finished, would wait for ever.
    """
    made = v1.ConfigProto(device_filters=["/job:ps", role.device])
    made.gpu_options.allow_growth = True
    return made


def serve(role: Role) -> None:
    """Hold variables until somebody ends this process: a ps never learns that training is over."""
    no_gpu = v1.ConfigProto(device_count={"GPU": 0})
    tf.distribute.Server(role.cluster, role.job, role.index, config=no_gpu).join()


def server(role: Role) -> tf.distribute.Server:
    """A worker's own: its session's master, and what the others reach."""
    return tf.distribute.Server(role.cluster, role.job, role.index, config=config(role))


def on_ps(role: Role) -> object:
    """The scope in which variables go to the ps, in turn, and all else stays on this worker."""
    return v1.device(
        v1.train.replica_device_setter(cluster=role.cluster, worker_device=role.device)
    )


def open_session(
    target: str,
    role: Role,
    given: argparse.Namespace,
    hooks: list[v1.train.SessionRunHook],
    scaffold: v1.train.Scaffold | None = None,
) -> v1.train.MonitoredSession:
    """The chief restores or initializes the variables, and saves; the others wait for it."""
    scaffold = scaffold or v1.train.Scaffold()
    # The hook reads the global step, which all workers share: so each stops by itself.
    hooks = [v1.train.StopAtStepHook(last_step=given.steps), *hooks]
    if not role.is_chief:
        return v1.train.MonitoredSession(PromptWorker(target, role, scaffold), hooks)
    return v1.train.MonitoredTrainingSession(
        target,
        scaffold=scaffold,
        checkpoint_dir=given.checkpoint_dir,
        hooks=hooks,
        save_checkpoint_steps=given.save_steps,
        save_summaries_steps=10,
        config=config(role),
    )


class PromptWorker(v1.train.SessionCreator):
    """Looks every second whether the chief is done with the variables.

    MonitoredTrainingSession looks every 30 s, and a short training is over by then.
    """

    def __init__(self, target: str, role: Role, scaffold: v1.train.Scaffold) -> None:
        self.target, self.role, self.scaffold = target, role, scaffold

    def create_session(self) -> v1.Session:
        scaffold = self.scaffold.finalize()
        manager = v1.train.SessionManager(
            local_init_op=scaffold.local_init_op,
            ready_op=scaffold.ready_op,
            ready_for_local_init_op=scaffold.ready_for_local_init_op,
            recovery_wait_secs=1,
        )
        return manager.wait_for_session(self.target, config(self.role))
