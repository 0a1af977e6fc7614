"""Every task gets the address of the first one, and no other address."""

import argparse
import json

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("--coord_host", required=True)
parser.add_argument("--controller_host", required=True)
parser.add_argument("--id", type=int, required=True)
given = parser.parse_args()
print(json.dumps({"id": given.id, "first": [given.coord_host, given.controller_host]}))
