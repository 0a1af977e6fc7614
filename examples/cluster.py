"""Flags, a server and a session, shared by all between-graph scripts.

Between-graph: each worker builds its own graph, and all of them share the variables on the ps.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import tensorflow as tf
from digits import data, model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

v1 = tf.compat.v1
# Much of what these recipes show is deprecated; TensorFlow would warn at each use.
v1.logging.set_verbosity(v1.logging.ERROR)
JITTER = 0.2  # σ of the logarithm of a batch's time with --compute_ms


class Role(NamedTuple):
    """The task that this process is, and its cluster."""

    cluster: tf.train.ClusterSpec
    job: str
    index: int

    @property
    def is_chief(self) -> bool:
        """Whether this is the first worker, which initializes, restores and saves the variables."""
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
    """Return a parser with the common flags. `steps` is the help text that says what a step is."""
    idea = doc.splitlines()[0]  # The formulas below it would be wrapped as a paragraph.
    parser = argparse.ArgumentParser(description=idea, allow_abbrev=False)
    add = parser.add_argument
    add("--job_name", choices=("ps", "worker", "evaluator"), required=True)
    add("--task_index", type=int, required=True)
    add("--ps_hosts", default="", help="host:port,host:port; one worker alone needs none")
    add("--worker_hosts", required=True, help="the first is the chief")
    add("--checkpoint_dir", default="checkpoints")
    add("--steps", type=int, default=600, help=steps)
    add("--batch_size", type=int, default=64, help="of each worker")
    add("--save_steps", type=int, default=1000, help="steps between two checkpoints")
    add("--slow_worker", type=int, default=0, help="the index of the worker that --slow_ms slows")
    add("--slow_ms", type=float, default=0, help="added to each of its batches, in milliseconds")
    add(
        "--compute_ms",
        type=float,
        default=0,
        help="added to each batch of all workers, with jitter",
    )
    return parser


def algorithm_flags(doc: str, steps: str = "of all workers together") -> argparse.ArgumentParser:
    """Return a parser with the flags of the training algorithms as well."""
    parser = flags(doc, steps)
    add = parser.add_argument
    add("--data-dir", type=Path, help=data.FLAG_HELP)
    add("--net", choices=model.NETS, default="convolutions", help="dense is smaller and faster")
    add("--measure_every", type=int, default=0, metavar="STEPS", help="see centre.py; 0: never")
    return parser


def batches(
    examples: data.Examples, role: Role, given: argparse.Namespace
) -> Iterator[data.Examples]:
    """Yield this worker's random batches; before each it waits as long as the flags say."""
    wait = pause(role, given)
    for batch in data.batches(examples, given.batch_size, seed=role.index):
        if wait:
            wait()
        yield batch


def pause(role: Role, given: argparse.Namespace) -> Callable[[], None] | None:
    """Return what makes a batch of this worker longer; None if no flag does.

    The nets here are so small that workers on one machine take turns. With --compute_ms they all
    compute at the same time, as machines of their own do, and the same happens to their gradients.
    """
    slow_ms = given.slow_ms if role.index == given.slow_worker else 0
    chance = random.Random(role.index)

    def wait() -> None:
        jitter = chance.lognormvariate(-(JITTER**2) / 2, JITTER)
        time.sleep((given.compute_ms * jitter + slow_ms) / 1000)

    return wait if given.compute_ms or slow_ms else None


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
    """Return a session configuration that sees only the ps and this worker.

    Without these filters a session waits until every worker answers: a late worker would wait
    forever if another one has already finished.
    """
    config = v1.ConfigProto(device_filters=["/job:ps", role.device])
    config.gpu_options.allow_growth = True
    return config


def serve(role: Role) -> None:
    """Hold variables until this process is stopped: a ps does not learn that training is over."""
    no_gpu = v1.ConfigProto(device_count={"GPU": 0})
    tf.distribute.Server(role.cluster, role.job, role.index, config=no_gpu).join()


def server(role: Role) -> tf.distribute.Server:
    """Return this worker's server: the master of its session, to which the others connect."""
    return tf.distribute.Server(role.cluster, role.job, role.index, config=config(role))


def on_ps(role: Role, strategy: Callable[[tf.Operation], int] | None = None) -> object:
    """Return a scope that puts variables on the ps in turn, and everything else on this worker.

    `strategy`, if given, returns the number of the ps for a variable.
    """
    if role.ps == 0:
        return v1.device(role.device)
    setter = v1.train.replica_device_setter(
        cluster=role.cluster, worker_device=role.device, ps_strategy=strategy
    )
    return v1.device(setter)


def places(variables: Iterable[tf.Variable]) -> str:
    """Return the tasks that hold the variables, such as "/job:ps/task:0, /job:ps/task:1"."""
    return ", ".join(sorted({variable.device for variable in variables}))


class Progress(v1.train.SessionRunHook):
    """Print `step N loss X` at intervals, and a summary at the end."""

    def __init__(self, loss: tf.Tensor, every: int = 100, batches: int = 1) -> None:
        self.step, self.loss, self.every = v1.train.get_global_step(), loss, every
        self.batches = batches  # computed by this worker between two calls of the hook
        self.own, self.reported = 0, -1

    def after_create_session(self, *_: object) -> None:
        self.start = time.monotonic()

    def before_run(self, _: v1.train.SessionRunContext) -> v1.train.SessionRunArgs:
        return v1.train.SessionRunArgs([self.step, self.loss])

    def after_run(self, _: v1.train.SessionRunContext, values: v1.train.SessionRunValues) -> None:
        step, loss = values.results
        self.own += self.batches
        if step // self.every > self.reported:
            print(f"step {step} loss {loss:.3f}", flush=True)
            self.reported = step // self.every

    def end(self, session: v1.Session) -> None:
        step, took = session.run(self.step), time.monotonic() - self.start
        print(f"stopped at step {step} in {took:.1f} s, own steps: {self.own}", flush=True)


def open_session(
    target: str,
    role: Role,
    given: argparse.Namespace,
    hooks: list[v1.train.SessionRunHook],
    scaffold: v1.train.Scaffold | None = None,
    stop_grace_period_secs: int = 120,
) -> v1.train.MonitoredSession:
    """Open a session. The chief initializes or restores the variables and saves; others wait."""
    scaffold = scaffold or v1.train.Scaffold()
    # The hook reads the global step, which all workers share, so each worker stops by itself.
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
    """Check every second whether the chief has initialized the variables.

    MonitoredTrainingSession checks every 30 s; a short training is over by then.
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
