"""Make the figures of docs/recipes.md: `python -m figures simulate`, `real` or `draw`.

`make figures` and `make recipes` call it in the folder of the examples.
"""

from __future__ import annotations

import os
import sys

# One thread for each process: the simulations run side by side.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def main() -> None:
    match sys.argv[1:]:
        case ["simulate"]:
            from figures import grid, store

            store.write(store.SIMULATION, grid.simulate())
        case ["real"]:
            from figures import real, store

            for document in real.measure():
                store.write(store.REAL, document)
        case ["draw"]:
            from figures import draw, page

            draw.all_figures()
            page.write()
        case _:
            sys.exit("expected one word: simulate, real or draw")


if __name__ == "__main__":
    main()
