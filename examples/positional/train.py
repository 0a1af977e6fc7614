"""A script that takes its role as two words, `worker 0`, and the addresses from cluster.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import counting
import tensorflow as tf


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: train.py JOB INDEX, for example: train.py worker 0")
    job, index = sys.argv[1:]
    addresses = json.loads(Path("cluster.json").read_text())
    if not index.isdigit() or int(index) >= len(addresses.get(job, ())):
        sys.exit(f"train.py: cluster.json has no task {job} {index}")
    print(f"this is {job} {index} of {sorted(addresses)}", flush=True)
    cluster = tf.train.ClusterSpec(addresses)
    if job == "ps":
        counting.serve(cluster, int(index))
    else:
        counting.work(cluster, int(index))


if __name__ == "__main__":
    main()
