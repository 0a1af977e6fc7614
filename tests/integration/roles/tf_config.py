"""TF_CONFIG, as TensorFlow reads it."""

import json
import os

told = json.loads(os.environ["TF_CONFIG"])
print(json.dumps({"me": [told["task"]["type"], told["task"]["index"]], **told["cluster"]}))
