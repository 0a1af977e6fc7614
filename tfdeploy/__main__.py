"""The program: `tfdeploy`, and `python -m tfdeploy`."""

from __future__ import annotations

import gc

# Python searches for garbage whenever this number of objects was added: by itself after 700, which
# is 90 times while a command imports its modules.
NEW_OBJECTS = 50_000


def main() -> None:
    """Run the command line, with a garbage collector for a process that exits soon."""
    gc.set_threshold(NEW_OBJECTS)
    from tfdeploy import cli

    try:
        cli.main()
    finally:
        gc.freeze()  # or Python would search all objects for garbage several times while it exits


if __name__ == "__main__":
    main()
