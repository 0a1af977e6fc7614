"""Dashes instead of underscores."""

import argparse
import json

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--job-name", required=True)
parser.add_argument("--task-index", type=int, required=True)
parser.add_argument("--ps-hosts", required=True)
parser.add_argument("--worker-hosts", required=True)
given = parser.parse_args()
ps, workers = given.ps_hosts.split(","), given.worker_hosts.split(",")
print(json.dumps({"me": [given.job_name, given.task_index], "ps": ps, "workers": workers}))
