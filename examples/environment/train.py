"""A script that takes its role and the addresses from environment variables."""

from __future__ import annotations

import os
import sys

import counting
import tensorflow as tf

NEEDED = ("JOB_NAME", "TASK_INDEX", "PS_HOSTS", "WORKER_HOSTS")


def main() -> None:
    missing = [name for name in NEEDED if name not in os.environ]
    if missing:
        sys.exit(f"train.py: set {', '.join(missing)} in the environment")
    job, index = os.environ["JOB_NAME"], int(os.environ["TASK_INDEX"])
    addresses = {
        "ps": os.environ["PS_HOSTS"].split(","),
        "worker": os.environ["WORKER_HOSTS"].split(","),
    }
    print(f"this is {job} {index} of {sorted(addresses)}", flush=True)
    cluster = tf.train.ClusterSpec(addresses)
    if job == "ps":
        counting.serve(cluster, index)
    else:
        counting.work(cluster, index)


if __name__ == "__main__":
    main()
