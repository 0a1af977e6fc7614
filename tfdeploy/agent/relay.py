"""The verbs `share` and `fetch`: a release passes from host to host, not from home to each.

Both ends show the one certificate that the controller made for this push and sent by SSH: nobody
else can ask, answer or listen. It lies in no file. What comes is compared with the manifest, which
came by SSH too, so a host that lies gains nothing.
"""

from __future__ import annotations

import json
import os
import ssl
import threading
import time

from . import TYPE_CHECKING, paths, releases
from .dial import dial, listen
from .payload import BLOCK, FRAME, files
from .refusal import Refusal

if TYPE_CHECKING:
    import socket
    from typing import Any, Dict, List

CONNECT_TIMEOUT_S = 5.0
SILENCE_S = 20.0
BREATH_S = 0.1


def share(project: str, release: str, ports: List[int], identity: str) -> Dict[str, Any]:
    """Offer a whole release to whoever shows the PEM `identity`, until our end. Answers `{port}`:
    one of `ports` (0: any)."""
    held, listener = _held(project, release), _listening(ports)
    context = _context(ssl.PROTOCOL_TLS_SERVER, identity)
    arguments = (listener, context, paths.release(project, release), held)
    threading.Thread(target=_accept, args=arguments, daemon=True).start()
    return {"port": listener.getsockname()[1]}


def fetch(project: str, release: str, address: str, port: int, identity: str) -> Dict[str, Any]:
    """Take what a release lacks from a host that shares it. Answers as `releases.fill`."""
    if (project, release) not in releases.growing:
        raise releases.not_begun(release)
    wanted = releases.growing[project, release].wanted()
    context = _context(ssl.PROTOCOL_TLS_CLIENT, identity)
    try:
        with dial(address, port, CONNECT_TIMEOUT_S) as plain:
            plain.settimeout(SILENCE_S)
            with context.wrap_socket(plain) as sock, sock.makefile("rb") as answer:
                sock.sendall(json.dumps(wanted).encode() + b"\n")
                return releases.fill(project, release, files(answer))
    except (OSError, EOFError, IndexError) as error:  # cut off, or a host that lies
        raise Refusal(
            "{}:{} can't be fetched from: {}".format(address, port, error), "is its port open?"
        ) from None


def _held(project: str, release: str) -> List[str]:
    """Its paths, in the manifest's order."""
    try:
        with open(paths.manifest(project, release), encoding="utf-8") as file:
            return list(json.load(file))
    except (OSError, ValueError):
        raise Refusal("what release {} holds is not known here".format(release), "") from None


def _listening(ports: List[int]) -> socket.socket:
    """At the first of them that is free."""
    for port in ports or [0]:
        try:
            return listen(port)
        except OSError:
            continue
    raise Refusal("none of its ports is free", "give the host a wider range of ports")


def _context(protocol: int, identity: str) -> ssl.SSLContext:
    """Both ends are the same one, and trust nobody else."""
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=identity[identity.index("-----BEGIN CERTIFICATE") :])
    descriptor = os.memfd_create("identity")  # a file, as ssl wants it, that no disk sees
    try:
        os.write(descriptor, identity.encode())
        context.load_cert_chain("/proc/self/fd/{}".format(descriptor))
    finally:
        os.close(descriptor)
    return context


def _accept(listener: socket.socket, context: ssl.SSLContext, folder: str, held: List[str]) -> None:
    while True:
        try:
            plain, _ = listener.accept()
        except OSError:  # it hung up before we came to it, or there are too many at once
            time.sleep(BREATH_S)
            continue
        arguments = (plain, context, folder, held)
        threading.Thread(target=_serve, args=arguments, daemon=True).start()


def _serve(plain: socket.socket, context: ssl.SSLContext, folder: str, held: List[str]) -> None:
    try:
        plain.settimeout(SILENCE_S)
        with plain, context.wrap_socket(plain, server_side=True) as sock:
            with sock.makefile("rb") as question:
                wanted = json.loads(question.readline())
            for index in wanted:
                _send(sock, index, os.path.join(folder, held[index]))
    except (OSError, ValueError, IndexError):
        return  # whoever asked will ask another


def _send(sock: ssl.SSLSocket, index: int, path: str) -> None:
    """Not packed: between hosts the wire is the faster one."""
    with open(path, "rb") as file:
        sock.sendall(FRAME.pack(index, os.fstat(file.fileno()).st_size))
        for block in iter(lambda: file.read(BLOCK), b""):
            sock.sendall(block)
