"""TF_CONFIG, as TensorFlow reads it."""

import json
import os

config = json.loads(os.environ["TF_CONFIG"])
print(json.dumps({"me": [config["task"]["type"], config["task"]["index"]], **config["cluster"]}))
