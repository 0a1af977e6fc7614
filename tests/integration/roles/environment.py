"""Variables, with comma lists; nothing on the command line."""

import json
import os
import sys

assert len(sys.argv) == 1, sys.argv
me = [os.environ["JOB_NAME"], int(os.environ["TASK_INDEX"])]
ps, workers = os.environ["PS_HOSTS"].split(","), os.environ["WORKER_HOSTS"].split(",")
print(json.dumps({"me": me, "ps": ps, "workers": workers}))
