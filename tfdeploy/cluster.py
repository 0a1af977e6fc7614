"""TensorFlow's own nouns: a Task is (job, index), a ClusterSpec says who can be dialled where."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import total_ordering

from tfdeploy.errors import PlanError

# The order in which tasks start: who is dialled comes before who dials.
JOBS = ("ps", "worker", "chief", "evaluator")

ClusterSpec = Mapping[str, tuple[str, ...]]
"""job -> addresses ("host:port") by task index, as tf.train.ClusterSpec takes it."""


@total_ordering
@dataclass(frozen=True)
class Task:
    """TensorFlow's task: `Task("worker", 1)` is `worker:1` to people, `worker-1` in file names."""

    job: str
    index: int

    def __str__(self) -> str:
        return f"{self.job}:{self.index}"

    def __lt__(self, other: Task) -> bool:
        return (JOBS.index(self.job), self.index) < (JOBS.index(other.job), other.index)

    @property
    def file_name(self) -> str:
        """The task's name as part of a path."""
        return f"{self.job}-{self.index}"

    @property
    def in_cluster(self) -> bool:
        """An evaluator opens no port and is part of no cluster spec: it only reads checkpoints."""
        return self.job != "evaluator"

    @classmethod
    def parse(cls, text: str) -> Task:
        """Read `worker:1` or `worker-1`. Raises PlanError on anything else."""
        job, separator, index = text.replace("-", ":").partition(":")
        if job not in JOBS or not separator or not index.isdecimal():
            raise PlanError(
                f'"{text}" is not a task',
                f"name one of {', '.join(JOBS)} and an index: worker:0",
            )
        return cls(job, int(index))


def tf_config(cluster: ClusterSpec, task: Task) -> str:
    """The TF_CONFIG of one task: JSON with `cluster` and `task`.

    Source: tf.distribute.cluster_resolver.TFConfigClusterResolver. Raises PlanError for a cluster
    that holds an evaluator, which TensorFlow would wait for.
    """
    if "evaluator" in cluster:
        raise PlanError("an evaluator can't be part of the cluster: no other task may dial it")
    return json.dumps(
        {
            "cluster": cluster,
            "task": {"type": task.job, "index": task.index},
        }
    )
