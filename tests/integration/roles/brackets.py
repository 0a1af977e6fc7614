"""Variables with other names, and lists in brackets."""

import json
import os

me = [os.environ["JOB_NAME"], int(os.environ["JOB_INDEX"])]
lists = [os.environ[name] for name in ("PS_HOSTS", "WORKER_HOSTS")]
assert all(text[0] == "[" and text[-1] == "]" for text in lists), lists
ps, workers = (text.strip("[]").split(",") for text in lists)
print(json.dumps({"me": me, "ps": ps, "workers": workers}))
