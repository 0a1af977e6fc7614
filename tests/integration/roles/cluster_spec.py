"""The cluster as JSON, the number of workers and TensorBoard's port in variables."""

import json
import os

cluster = json.loads(os.environ["CLUSTER_SPEC"])
me = [os.environ["JOB_NAME"], int(os.environ["TASK_INDEX"])]
more = [int(os.environ["WORKER_CNT"]), int(os.environ["TB_PORT"])]
print(json.dumps({"me": me, "ps": cluster["ps"], "workers": cluster["worker"], "more": more}))
