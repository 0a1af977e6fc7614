"""Flag and value as two words, parsed by hand."""

import json
import sys

words = iter(sys.argv[1:])
given = {flag: next(words) for flag in words}
me = [given.pop("--job_name"), int(given.pop("--task_index"))]
ps, workers = given.pop("--ps_hosts").split(","), given.pop("--worker_hosts").split(",")
assert not given, given
print(json.dumps({"me": me, "ps": ps, "workers": workers}))
