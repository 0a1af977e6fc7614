"""Look up known weaknesses of the packages in lock files.

    python tests/support/audit.py FILE... [--service URL]

Exit code 0: none is known; 1: some are, each has a line; 2: the service can't be asked. It is sent
names and versions of packages only. Source of the format: osv.dev's API, /v1/querybatch.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import urllib.request
from pathlib import Path

SERVICE = "https://api.osv.dev/v1/querybatch"
PINNED = re.compile(r"^([A-Za-z0-9][\w.-]*)==([\w.!+-]+)", re.ASCII | re.M)
# The id of a weakness that does not concern this project, and why.
ACCEPTED: dict[str, str] = {}
TIMEOUT_S = 30.0


def pinned(text: str) -> set[tuple[str, str]]:
    """Return the names and versions in a lock file."""
    return set(PINNED.findall(text))


def look_up(packages: list[tuple[str, str]], service: str) -> dict[tuple[str, str], list[str]]:
    """Return the ids of the known weaknesses of each package that has some. Raises OSError, and
    ValueError if the service gives no answer for each package."""
    queries = [
        {"package": {"name": name, "ecosystem": "PyPI"}, "version": version}
        for name, version in packages
    ]
    body, kind = json.dumps({"queries": queries}).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(service, body, kind)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        results = json.load(answer)["results"]
    return {
        package: ids
        for package, result in zip(packages, results, strict=True)
        if (ids := sorted({found["id"] for found in result.get("vulns", ())} - set(ACCEPTED)))
    }


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--service", default=SERVICE)
    given = parser.parse_args(words)
    packages = sorted(set().union(*(pinned(file.read_text()) for file in given.files)))
    try:
        weak = look_up(packages, given.service)
    except OSError as error:
        print(f"the packages were not audited: {given.service} can't be reached: {error}")
        return 2
    except (ValueError, KeyError, TypeError, AttributeError):
        print(f"the packages were not audited: {given.service} gave another answer than expected")
        return 2
    for (name, version), ids in weak.items():
        print(f"{name} {version}: {', '.join(ids)}")
    print(f"{len(packages)} packages were audited, {len(weak)} have known weaknesses")
    return int(bool(weak))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
