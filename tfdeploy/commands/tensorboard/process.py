"""The process of TensorBoard: python -m … LOGDIR [PORT]. It prints its address, and exits when its
standard input ends: so it never outlives the command that started it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    # As wsgiref.types has them, with Any in its own.
    Environment = dict[str, object]
    StartResponse = Callable[[str, list[tuple[str, str]]], object]
    App = Callable[[Environment, StartResponse], Iterable[bytes]]

RELOAD_S = 5.0
LOOPBACK = "127.0.0.1"
NAMES = (LOOPBACK, "localhost")


def main(logdir: str, port: str) -> None:
    from tensorboard import program

    def serve(app: App, flags: object) -> object:
        return program.create_port_scanning_werkzeug_server(for_own_names(app), flags)

    board = program.TensorBoard(server_class=serve)
    board.configure(
        logdir=logdir, host=LOOPBACK, port=int(port) if port else None, reload_interval=RELOAD_S
    )
    os.write(1, f"{board.launch()}\n".encode())
    while os.read(0, 1):
        pass
    os._exit(0)  # its threads may wait for a browser


def for_own_names(app: App) -> App:
    """Return a WSGI app that answers only requests for NAMES, as TensorBoard itself does not check:
    pages that a browser has loaded from elsewhere can give their own name this address."""

    def answer(environ: Environment, start: StartResponse) -> Iterable[bytes]:
        if str(environ.get("HTTP_HOST", LOOPBACK)).partition(":")[0] in NAMES:
            return app(environ, start)
        start("403 Forbidden", [("Content-Type", "text/plain")])
        return [b"expected a request for 127.0.0.1 or localhost\n"]

    return answer


if __name__ == "__main__":
    main(*sys.argv[1:3])
