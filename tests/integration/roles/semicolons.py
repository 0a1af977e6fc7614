"""Lists joined by ";", a flag with the worker's type, and a flag only for the evaluator."""

import argparse
import json

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--chief-hosts", required=True)
parser.add_argument("--ps-hosts", required=True)
parser.add_argument("--worker-hosts", required=True)
parser.add_argument("--worker-type")
parser.add_argument("--worker-index", type=int)
parser.add_argument("--evaluator", action="store_true")
given = parser.parse_args()
me = ["evaluator", 0] if given.evaluator else [given.worker_type, given.worker_index]
lists = {"chief": given.chief_hosts, "ps": given.ps_hosts, "workers": given.worker_hosts}
print(json.dumps({"me": me, **{name: text.split(";") for name, text in lists.items()}}))
