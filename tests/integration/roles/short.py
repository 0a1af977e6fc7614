"""One-letter options, as for getopt."""

import getopt
import json
import sys

given, rest = getopt.getopt(sys.argv[1:], "j:p:w:x:")
assert not rest, rest
given = dict(given)
ps, workers = given["-p"].split(","), given["-w"].split(",")
print(json.dumps({"me": [given["-j"], int(given["-x"])], "ps": ps, "workers": workers}))
