"""What every between-graph script does around its own idea: flags, a server, and a session.

Between-graph: each worker builds a graph of its own, and they meet in variables that the ps hold.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

v1 = tf.compat.v1
# Half of what these recipes teach is deprecated, and TensorFlow says so at each use.
v1.logging.set_verbosity(v1.logging.ERROR)


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
    def ps(self) -> int:
        return self.cluster.num_tasks("ps") if "ps" in self.cluster.jobs else 0

    @property
    def workers(self) -> int:
        return self.cluster.num_tasks("worker")

    @property
    def device(self) -> str:
        return f"/job:worker/task:{self.index}"


def flags(doc: str, steps: str = "of all workers together") -> argparse.ArgumentParser:
    """The flags that all of these scripts have; a script adds its own, and says what a step is."""
    idea = doc.splitlines()[0]  # Formulas that follow would be set as a paragraph.
    parser = argparse.ArgumentParser(description=idea, allow_abbrev=False)
    add = parser.add_argument
    add("--job_name", choices=("ps", "worker", "evaluator"), required=True)
    add("--task_index", type=int, required=True)
    add("--ps_hosts", default="", help="host:port,host:port; one worker alone needs none")
    add("--worker_hosts", required=True, help="the first one is the chief")
    add("--checkpoint_dir", default="checkpoints")
    add("--steps", type=int, default=600, help=steps)
    add("--batch_size", type=int, default=64, help="of each worker")
    add("--save_steps", type=int, default=1000, help="a checkpoint after every so many steps")
    return parser


def role(given: argparse.Namespace) -> Role:
    hosts = {"ps": given.ps_hosts, "worker": given.worker_hosts}
    jobs = {job: named.split(",") for job, named in hosts.items() if named}
    tasks = len(jobs.get(given.job_name, ()))
    if given.job_name != "evaluator" and not 0 <= given.task_index < tasks:
        sys.exit(f"--task_index={given.task_index}, but --{given.job_name}_hosts names {tasks}")
    if "ps" not in jobs and len(jobs["worker"]) > 1:
        sys.exit(
            f"--ps_hosts names no task for the {len(jobs['worker'])} workers to meet in: "
            "give it one, or run one worker alone"
        )
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


def on_ps(role: Role, strategy: Callable[[tf.Operation], int] | None = None) -> object:
    """The scope in which variables go to the ps, in turn, and all else stays on this worker.

    A `strategy` of the script's own says for each variable which ps it goes to.
    """
    if role.ps == 0:
        return v1.device(role.device)
    setter = v1.train.replica_device_setter(
        cluster=role.cluster, worker_device=role.device, ps_strategy=strategy
    )
    return v1.device(setter)


def places(variables: Iterable[tf.Variable]) -> str:
    """The tasks that hold them, as "/job:ps/task:0, /job:ps/task:1"."""
    return ", ".join(sorted({variable.device for variable in variables}))


class Progress(v1.train.SessionRunHook):
    """Prints `step N loss X` now and then, and at the end how far training came."""

    def __init__(self, loss: tf.Tensor, every: int = 100, batches: int = 1) -> None:
        self.step, self.loss, self.every = v1.train.get_global_step(), loss, every
        self.batches = batches  # that a worker has computed, when the hook hears of it again
        self.own, self.told = 0, -1

    def after_create_session(self, *_: object) -> None:
        self.began = time.monotonic()

    def before_run(self, _: v1.train.SessionRunContext) -> v1.train.SessionRunArgs:
        return v1.train.SessionRunArgs([self.step, self.loss])

    def after_run(self, _: v1.train.SessionRunContext, values: v1.train.SessionRunValues) -> None:
        step, loss = values.results
        self.own += self.batches
        if step // self.every > self.told:
            print(f"step {step} loss {loss:.3f}", flush=True)
            self.told = step // self.every

    def end(self, session: v1.Session) -> None:
        step, took = session.run(self.step), time.monotonic() - self.began
        print(f"stopped at step {step} after {self.own} of my own in {took:.1f} s", flush=True)


def open_session(
    target: str,
    role: Role,
    given: argparse.Namespace,
    hooks: list[v1.train.SessionRunHook],
    scaffold: v1.train.Scaffold | None = None,
    stop_grace_period_secs: int = 120,
) -> v1.train.MonitoredSession:
    """The chief restores or initializes the variables, and saves; the others wait for it."""
    scaffold = scaffold or v1.train.Scaffold()
    # The hook reads the global step, which all workers share: so each stops by itself.
    hooks = [v1.train.StopAtStepHook(last_step=given.steps), *hooks]
    if not role.is_chief:
        creator = PromptWorker(target, role, scaffold)
        return v1.train.MonitoredSession(creator, hooks, stop_grace_period_secs)
    return v1.train.MonitoredTrainingSession(
        target,
        scaffold=scaffold,
        checkpoint_dir=given.checkpoint_dir,
        hooks=hooks,
        save_checkpoint_steps=given.save_steps,
        save_summaries_steps=10,
        config=config(role),
        stop_grace_period_secs=stop_grace_period_secs,
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
