"""The verbs `share` and `fetch`: copy a release from host to host instead of from the controller.

Both ends show the same certificate, which the controller created for this push and sent by SSH. No
other process can connect, answer or read the traffic. The certificate is stored in no file. What
arrives is compared with the manifest, which was sent by SSH too, so a host cannot send false files.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import threading
import time
from typing import List

from ...shared.pack import BLOCK, FRAME, read_files
from ...shared.protocol.releases import FilesReceived, Sharing
from .. import paths
from ..machine.sockets import ConnectionLimit, connect, listen
from ..refusal import Refusal
from . import receive

CONNECT_TIMEOUT_S = 5.0
IDLE_TIMEOUT_S = 20.0
HANDSHAKE_TIMEOUT_S = 10.0
ACCEPT_RETRY_S = 0.1


def share(project: str, release: str, ports: List[int], identity: str) -> Sharing:
    """Serve a complete release to clients that show the PEM `identity`, until this process ends.

    It listens on one of `ports` (0: any free port). Raises Refusal.
    """
    names, listener = _manifest_paths(project, release), _listen(ports)
    context = _tls_context(ssl.PROTOCOL_TLS_SERVER, identity)
    arguments = (listener, context, paths.release(project, release), names)
    threading.Thread(target=_accept, args=arguments, daemon=True).start()
    return Sharing(listener.getsockname()[1])


def fetch(project: str, release: str, address: str, port: int, identity: str) -> FilesReceived:
    """Fetch the missing files of a release from a host that shares it. Raises Refusal."""
    if (project, release) not in receive.staged:
        raise receive.not_started(release)
    wanted = receive.staged[project, release].missing()
    context = _tls_context(ssl.PROTOCOL_TLS_CLIENT, identity)
    try:
        with connect(address, port, CONNECT_TIMEOUT_S) as plain:
            plain.settimeout(IDLE_TIMEOUT_S)
            with context.wrap_socket(plain) as sock, sock.makefile("rb") as answer:
                sock.sendall(json.dumps(wanted).encode() + b"\n")
                return receive.complete(project, release, read_files(answer))
    except (OSError, EOFError, IndexError) as error:  # IndexError: a position that does not exist
        raise Refusal(
            "the release can't be fetched from {}:{}: {}".format(address, port, error),
            "check that the port is open",
        ) from None


def _manifest_paths(project: str, release: str) -> List[str]:
    """Return the release's paths, in the manifest's order."""
    try:
        with open(paths.manifest(project, release), encoding="utf-8") as file:
            return list(json.load(file))
    except (OSError, ValueError):
        raise Refusal("this host has no manifest of release {}".format(release), "") from None


def _listen(ports: List[int]) -> socket.socket:
    """Listen on the first of the ports that is free."""
    for port in ports or [0]:
        try:
            return listen(port)
        except OSError:
            continue
    raise Refusal("none of its ports is free", "give the host a wider range of ports")


def _tls_context(protocol: int, identity: str) -> ssl.SSLContext:
    """Return a context that shows `identity` and accepts no other."""
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=identity[identity.index("-----BEGIN CERTIFICATE") :])
    descriptor = os.memfd_create("identity")  # ssl requires a file; this one is in memory
    try:
        os.write(descriptor, identity.encode())
        context.load_cert_chain("/proc/self/fd/{}".format(descriptor))
    finally:
        os.close(descriptor)
    return context


def _accept(
    listener: socket.socket, context: ssl.SSLContext, folder: str, names: List[str]
) -> None:
    limit = ConnectionLimit()  # strangers may connect, and count until they show the certificate

    def serve(sock: ssl.SSLSocket) -> None:
        is_known = False
        try:
            is_known = _shake_hands(sock)
        finally:
            limit.release(sock)
        if is_known:
            _serve(sock, folder, names)

    while True:
        try:
            plain, (address, *_) = listener.accept()
            sock = context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        except OSError:  # the client is gone already, or too many files are open
            time.sleep(ACCEPT_RETRY_S)
            continue
        if limit.admit(sock, address):
            threading.Thread(target=serve, args=(sock,), daemon=True).start()
        else:
            sock.close()


def _shake_hands(sock: ssl.SSLSocket) -> bool:
    """Return whether the client shows the certificate; the connection of a stranger is closed."""
    try:
        sock.settimeout(HANDSHAKE_TIMEOUT_S)
        sock.do_handshake()
        sock.settimeout(IDLE_TIMEOUT_S)
        return True
    except OSError:
        sock.close()
        return False


def _serve(sock: ssl.SSLSocket, folder: str, names: List[str]) -> None:
    try:
        with sock:
            with sock.makefile("rb") as request:
                wanted = json.loads(request.readline())
            for index in wanted:
                _send_file(sock, index, os.path.join(folder, names[index]))
    except (OSError, ValueError, IndexError):
        return  # the client fetches from another host


def _send_file(sock: ssl.SSLSocket, index: int, path: str) -> None:
    """Send a file uncompressed: between hosts the network is faster than zlib."""
    with open(path, "rb") as file:
        sock.sendall(FRAME.pack(index, os.fstat(file.fileno()).st_size))
        for block in iter(lambda: file.read(BLOCK), b""):
            sock.sendall(block)
