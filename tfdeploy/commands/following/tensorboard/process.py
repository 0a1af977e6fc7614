"""The process of TensorBoard: python -m … LOGDIR [PORT]. It prints its address, and exits when its
standard input ends: so it never outlives the command that started it."""

from __future__ import annotations

import os
import sys

RELOAD_S = 5.0


def main(logdir: str, port: str) -> None:
    from tensorboard import program

    board = program.TensorBoard()
    board.configure(
        logdir=logdir, host="127.0.0.1", port=int(port) if port else None, reload_interval=RELOAD_S
    )
    os.write(1, f"{board.launch()}\n".encode())
    while os.read(0, 1):
        pass
    os._exit(0)  # its threads may wait for a browser


if __name__ == "__main__":
    main(*sys.argv[1:3])
