"""SSH servers that lie: raw sockets for what comes before the handshake, and Paramiko's server for
what comes after it. A server has one lie, the same for every client."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import paramiko
from paramiko.common import cMSG_CHANNEL_DATA, cMSG_CHANNEL_EXTENDED_DATA

from support.ports import ADDRESS
from support.sshd import public

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.sshd import Keys

ESCAPES = "\x1b]0;evil\x07\x1b[2J\x1b[31m\u202e"
BLOCK = b"x" * (1 << 15)
MOST = 96 << 20  # bytes that a flood sends at most
PAUSE_S = 0.05
ANSWERED_S = 0.3  # until the request for a command is answered


class LyingServer:
    """A port on which `lie` is called with each connection, in a thread of its own. `sent` counts
    the bytes that lies have sent with `flood`, until it `is_flooded`."""

    def __init__(self, keys: Keys, lie: Callable[[LyingServer, socket.socket], None]) -> None:
        self.keys, self.ended = keys, threading.Event()
        self.sent, self.is_flooded = 0, False
        self.answers: list[str] = []  # what clients have answered to prompts
        self.kept: list[object] = []  # Paramiko closes channels and transports that are not used
        self._lie = lie
        self._listener = socket.create_server((ADDRESS, 0))
        self.port = self._listener.getsockname()[1]
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def known_hosts_line(self) -> str:
        return f"[{ADDRESS}]:{self.port} {public(self.keys.host)}"

    def entry(self, **more: str) -> dict[str, str]:
        """Return its entry for an ssh_config."""
        return {"HostName": ADDRESS, "Port": str(self.port), **more}

    def flood(self, send: Callable[[bytes], object], data: bytes = BLOCK) -> None:
        """Send until the client is gone, or MOST bytes."""
        with suppress(OSError, EOFError, paramiko.SSHException):
            while self.sent < MOST and not self.ended.is_set():
                send(data)
                self.sent += len(data)
        self.is_flooded = True

    def drip(self, send: Callable[[bytes], object], data: bytes) -> None:
        """Send a byte, again and again, until the client is gone."""
        with suppress(OSError, EOFError, paramiko.SSHException):
            while not self.ended.wait(PAUSE_S):
                send(data)

    def stop(self) -> None:
        self.ended.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._connections:
            each.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                threading.Thread(target=self._tell, args=(connection,), daemon=True).start()

    def _tell(self, connection: socket.socket) -> None:
        with suppress(OSError, EOFError, paramiko.SSHException), connection:
            self._lie(self, connection)


# Before the handshake


def banner_lines(server: LyingServer, connection: socket.socket) -> None:
    server.flood(connection.sendall, b"no banner\r\n" * 1000)


def banner_without_end(server: LyingServer, connection: socket.socket) -> None:
    server.flood(connection.sendall)


def banner_by_bytes(server: LyingServer, connection: socket.socket) -> None:
    server.drip(connection.sendall, b"x")


def another_protocol(server: LyingServer, connection: socket.socket) -> None:
    connection.sendall(f"HTTP/1.0 200 OK\r\nServer: {ESCAPES}\r\n\r\n".encode())


def impossible_packet(server: LyingServer, connection: socket.socket) -> None:
    """Announce a packet of 4 GiB, and send of it as much as the client takes."""
    connection.sendall(b"SSH-2.0-liar\r\n\xff\xff\xff\xff\x04\x14")
    server.flood(connection.sendall)


# After the handshake


class Liar(paramiko.ServerInterface):
    """Accepts every login and every command; subclasses lie."""

    def __init__(self, server: LyingServer, transport: paramiko.Transport) -> None:
        self.server, self.transport = server, transport

    def check_auth_none(self, username: str) -> int:
        return paramiko.AUTH_FAILED

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return paramiko.AUTH_SUCCESSFUL

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self.server.kept.append(channel)
        threading.Thread(target=self.run_quietly, args=(channel,), daemon=True).start()
        return True

    def check_channel_shell_request(self, channel: paramiko.Channel) -> bool:
        return False

    def run_quietly(self, channel: paramiko.Channel) -> None:
        self.server.ended.wait(ANSWERED_S)
        with suppress(OSError, EOFError, paramiko.SSHException):  # the client is gone
            self.run(channel)

    def run(self, channel: paramiko.Channel) -> None:
        """Do what the command does."""

    def send(self, channel: paramiko.Channel, data: bytes, *, errors: bool = False) -> None:
        """Send output of a command, whatever the client's window is."""
        message = paramiko.Message()
        message.add_byte(cMSG_CHANNEL_EXTENDED_DATA if errors else cMSG_CHANNEL_DATA)
        message.add_int(channel.remote_chanid)
        if errors:
            message.add_int(1)
        message.add_string(data)
        self.transport._send_user_message(message)


class WithoutWindow(paramiko.Transport):
    """Takes no input of a command."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self.default_window_size = 0


def serving(
    liar: type[Liar], kind: type[paramiko.Transport] = paramiko.Transport
) -> Callable[[LyingServer, socket.socket], None]:
    """Return the lie of a server with this interface."""

    def lie(server: LyingServer, connection: socket.socket) -> None:
        transport = kind(connection)
        transport.add_server_key(paramiko.Ed25519Key.from_private_key_file(str(server.keys.host)))
        transport.start_server(server=liar(server, transport), event=threading.Event())
        while transport.is_alive() and not server.ended.wait(PAUSE_S):
            pass
        transport.close()

    lie.__name__ = liar.__name__
    return lie


class NeverOpens(Liar):
    """Answers no request for a channel."""

    def check_channel_request(self, kind: str, chanid: int) -> int:
        self.server.ended.wait()
        return paramiko.OPEN_FAILED_CONNECT_FAILED


class NeverStarts(Liar):
    """Answers no request for a command."""

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        self.server.ended.wait()
        return False


class FloodsOutput(Liar):
    def run(self, channel: paramiko.Channel) -> None:
        self.server.flood(lambda data: self.send(channel, data))


class FloodsErrors(Liar):
    def run(self, channel: paramiko.Channel) -> None:
        self.server.flood(lambda data: self.send(channel, data, errors=True))


class ErrorsWithoutEnd(Liar):
    """Sends standard error as fast as the client reads it."""

    def run(self, channel: paramiko.Channel) -> None:
        while not self.server.ended.is_set():
            channel.sendall_stderr(BLOCK)


class Leaves(Liar):
    """Ends the connection in the middle of the output."""

    def run(self, channel: paramiko.Channel) -> None:
        channel.sendall(b"half an ans")
        self.transport.close()


class Drips(Liar):
    def run(self, channel: paramiko.Channel) -> None:
        self.server.drip(channel.sendall, b"x")


class SpeaksHttp(Liar):
    def run(self, channel: paramiko.Channel) -> None:
        channel.sendall(f"HTTP/1.0 200 OK\r\n\r\n<b>{ESCAPES}</b>\n".encode())
        channel.send_exit_status(0)
        channel.close()


class AcceptsAnybody(Liar):
    """Accepts a login without any key, shows a banner, and repeats what it was sent."""

    def check_auth_none(self, username: str) -> int:
        return paramiko.AUTH_SUCCESSFUL

    def get_banner(self) -> tuple[str, str]:
        return f"motd {ESCAPES}\r\n", "en"

    def run(self, channel: paramiko.Channel) -> None:
        channel.sendall(b"on\n")
        channel.send_exit_status(0)
        channel.close()


class OtherHostKey(Liar):
    """Shows another key when the keys of the connection are exchanged again."""

    def run(self, channel: paramiko.Channel) -> None:
        other = str(self.server.keys.other_host)
        self.transport.add_server_key(paramiko.Ed25519Key.from_private_key_file(other))
        self.transport.renegotiate_keys()
        channel.sendall(b"on\n")


class NeverLogsIn(Liar):
    """Answers no login."""

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self.server.ended.wait()
        return paramiko.AUTH_FAILED


class AsksForKeysForever(Liar):
    """Accepts each key, and wants one more."""

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return paramiko.AUTH_PARTIALLY_SUCCESSFUL


class Phishes(Liar):
    """Accepts the key, and then asks for what only the user should know."""

    has_key = False

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self.has_key = True
        return paramiko.AUTH_PARTIALLY_SUCCESSFUL

    def get_allowed_auths(self, username: str) -> str:
        return "keyboard-interactive" if self.has_key else "publickey,keyboard-interactive"

    def check_auth_interactive(self, username: str, submethods: str) -> paramiko.InteractiveQuery:
        words = f"{ESCAPES}Enter passphrase for key '/home/me/.ssh/id_ed25519': "
        return paramiko.InteractiveQuery(f"title {ESCAPES}", f"do {ESCAPES}", (words, False))

    def check_auth_interactive_response(self, responses: list[str]) -> int:
        self.server.answers += responses
        return paramiko.AUTH_FAILED
