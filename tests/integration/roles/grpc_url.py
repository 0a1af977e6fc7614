"""A worker gets its own address as a URL, its port, and the number of tasks of each job."""

import argparse
import json

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--worker_grpc_url", required=True)
parser.add_argument("--worker_index", type=int, required=True)
parser.add_argument("--num_workers", type=int, required=True)
parser.add_argument("--num_parameter_servers", type=int, required=True)
parser.add_argument("--grpc_port", type=int, required=True)
given = parser.parse_args()
counts = [given.num_parameter_servers, given.num_workers]
own = [given.worker_grpc_url, given.worker_index, given.grpc_port]
print(json.dumps({"own": own, "counts": counts}))
