"""The cluster in a JSON file beside the script; flags have the job and the index."""

import argparse
import json
from pathlib import Path

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--job", required=True)
parser.add_argument("--task", type=int, required=True)
parser.add_argument("--cluster", type=Path, required=True)
given = parser.parse_args()
cluster = json.loads(given.cluster.read_text())
print(json.dumps({"me": [given.job, given.task], **cluster}), flush=True)
