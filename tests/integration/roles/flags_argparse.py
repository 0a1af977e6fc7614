"""Strict argparse: the script exits with 2 on an unknown flag."""

import argparse
import json

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--job_name", choices=("ps", "worker"), required=True)
parser.add_argument("--task_index", type=int, required=True)
parser.add_argument("--ps_hosts", required=True)
parser.add_argument("--worker_hosts", required=True)
given = parser.parse_args()
ps, workers = given.ps_hosts.split(","), given.worker_hosts.split(",")
print(json.dumps({"me": [given.job_name, given.task_index], "ps": ps, "workers": workers}))
