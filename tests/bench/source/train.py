"""Stand in for a TensorFlow script: open the port at once and answer as TensorFlow's server."""

import socket
import struct
import sys

SETTINGS, HEADERS, DATA = 4, 1, 0
END_STREAM, END_HEADERS = 1, 4
FLAGS = dict(word[2:].split("=", 1) for word in sys.argv[1:])


def main():
    index = int(FLAGS["task_index"])
    port = FLAGS["worker_hosts"].split(",")[index].rpartition(":")[2]
    answer = response(f"/job:worker/replica:0/task:{index}/device:CPU:0".encode())
    print(f"worker:{index} listens on port {port}", flush=True)
    with socket.create_server(("", int(port)), backlog=128) as listener:
        while True:
            serve(listener.accept()[0], answer)


def serve(connection, answer):
    """Answer one call; a client that sends nothing delays the next one by at most 1 s."""
    with connection:
        connection.settimeout(1)
        try:
            if connection.recv(65536):
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass
        except OSError:
            return


def response(message):
    """Return a gRPC server's answer to a unary call (RFC 9113; 0x88 is ":status: 200")."""
    trailer = b"\x00\x0bgrpc-status\x010"
    return (
        frame(SETTINGS, 0, 0, b"")
        + frame(HEADERS, END_HEADERS, 1, b"\x88")
        + frame(DATA, 0, 1, b"\x00" + struct.pack(">I", len(message)) + message)
        + frame(HEADERS, END_HEADERS | END_STREAM, 1, trailer)
    )


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


main()
