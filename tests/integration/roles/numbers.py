"""Only numbers, without addresses, and a directory for logs."""

import argparse
import json

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--job-name", required=True)
parser.add_argument("--task", type=int, required=True)
parser.add_argument("--num-workers", type=int, required=True)
parser.add_argument("--log-dir", required=True)
given = parser.parse_args()
me = [given.job_name, given.task]
print(json.dumps({"me": me, "count": given.num_workers, "log": given.log_dir}))
