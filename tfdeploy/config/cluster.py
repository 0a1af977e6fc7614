"""TensorFlow's own terms: a Task is (job, index); a ClusterSpec maps each job to its addresses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import total_ordering

from tfdeploy.errors import PlanError

# The order in which tasks start: a ps must listen before the other tasks connect to it.
JOBS = ("ps", "worker", "chief", "evaluator")

ClusterSpec = Mapping[str, tuple[str, ...]]
"""job -> addresses ("host:port") by task index, as tf.train.ClusterSpec expects it."""


@total_ordering
@dataclass(frozen=True)
class Task:
    """One TensorFlow task. `Task("worker", 1)` is `worker:1` in messages, `worker-1` in paths."""

    job: str
    index: int

    def __str__(self) -> str:
        return f"{self.job}:{self.index}"

    def __lt__(self, other: Task) -> bool:
        return (JOBS.index(self.job), self.index) < (JOBS.index(other.job), other.index)

    @property
    def file_name(self) -> str:
        """Return the task's name as part of a path."""
        return f"{self.job}-{self.index}"

    @property
    def in_cluster(self) -> bool:
        """Whether the cluster spec lists the task. It does not list an evaluator, which only reads
        checkpoints and opens no port."""
        return self.job != "evaluator"

    @classmethod
    def parse(cls, text: str) -> Task:
        """Parse `worker:1` or `worker-1`. Raises PlanError for anything else."""
        job, separator, index = text.replace("-", ":").partition(":")
        if job not in JOBS or not separator or not index.isdecimal():
            raise PlanError(
                f'"{text}" is not a task',
                f"name a task, such as worker:0, or one of the jobs {', '.join(JOBS)}",
            )
        return cls(job, int(index))


def tf_config(cluster: ClusterSpec, task: Task) -> str:
    """Return the TF_CONFIG of one task: JSON with `cluster` and `task`.

    Source: tf.distribute.cluster_resolver.TFConfigClusterResolver. Raises PlanError for a cluster
    that lists an evaluator: TensorFlow would wait for it.
    """
    if "evaluator" in cluster:
        raise PlanError("an evaluator can't be part of the cluster: no task may connect to it")
    return json.dumps({"cluster": cluster, "task": {"type": task.job, "index": task.index}})
