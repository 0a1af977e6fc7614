"""A script that takes its role and the addresses from environment variables."""

from __future__ import annotations

import os

import counting
import tensorflow as tf


def main() -> None:
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
