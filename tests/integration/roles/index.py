"""One word: the index of the worker."""

import json
import sys

(index,) = sys.argv[1:]
print(json.dumps({"index": int(index)}))
