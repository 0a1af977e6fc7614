"""Branches: features that the rest of tfdeploy, its trunk, does not know.

A branch is one folder below this one, with everything that is its own, and one name in BRANCHES.
Delete both, and tfdeploy works without the feature. A branch imports what it needs of the trunk,
which calls it at these places only:

- `commands`, a module whose import adds its commands to the command line
- `documents()`, which returns the class of what each of them prints with --json
"""

from __future__ import annotations

from importlib import import_module

BRANCHES = (
    "live",
    "measuring",
)


def load_commands() -> None:
    """Add the commands of all branches, in the order of --help."""
    for branch in BRANCHES:
        import_module(f"{__name__}.{branch}.commands")


def documents() -> dict[str, type]:
    """Return the class of what each command of a branch prints with --json."""
    found: dict[str, type] = {}
    for branch in BRANCHES:
        found |= import_module(f"{__name__}.{branch}").documents()
    return found
