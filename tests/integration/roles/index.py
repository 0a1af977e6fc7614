"""One word: which of the workers this is."""

import json
import sys

(index,) = sys.argv[1:]
print(json.dumps({"index": int(index)}))
