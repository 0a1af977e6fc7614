"""Two words: the job and the index."""

import json
import sys

job, index = sys.argv[1:]
print(json.dumps({"me": [job, int(index)]}))
