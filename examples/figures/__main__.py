"""Make the figures of docs/recipes.md: `python -m figures real` or `draw`.

`make recipes` calls it in the folder of the examples.
"""

from __future__ import annotations

import sys


def main() -> None:
    match sys.argv[1:]:
        case ["real"]:
            from figures import real

            for document in real.measure():
                real.write(document)
        case ["draw"]:
            from figures import page

            page.write()
        case _:
            sys.exit("expected one word: real or draw")


if __name__ == "__main__":
    main()
