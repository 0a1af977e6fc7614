"""What the keeper has of one host: its connections, and commands that wait for who comes next."""

from __future__ import annotations

import shlex
import threading
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from tfdeploy.errors import CommandTimedOut, HostError
from tfdeploy.transport.channels import Channels, completed
from tfdeploy.transport.frames import BEGUN, ERRORS, EXIT, FAILED, INPUT, KEEP, OUTPUT
from tfdeploy.transport.kept import tell
from tfdeploy.transport.link import CLOCK, connect
from tfdeploy.transport.ssh import SshStream
from tfdeploy.transport.way import Way

if TYPE_CHECKING:
    from collections.abc import Sequence

    import paramiko

    from tfdeploy.transport import Completed
    from tfdeploy.transport.frames import Frames

MAX_PARKED = 2
LOOK_S = 1.0


class Host:
    """One way to a host. Commands are served at the same time, each in a thread of its own."""

    def __init__(self, text: str) -> None:
        way = Way.from_json(text)
        self.name = way.name
        self.used = 0.0
        self._keep_s = 0.0
        self._served = 0
        self._channels = Channels(way.name, lambda: connect(way, accept_new=False))
        self._parked: list[Talk] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._channels)

    @property
    def is_served(self) -> bool:
        return self._served > 0

    @property
    def is_over(self) -> bool:
        return time.clock_gettime(CLOCK) - self.used > self._keep_s

    def enter(self, keep_s: float) -> None:
        """A command begins with it, and may want it kept for so long after its end."""
        self._served += 1
        self._keep_s = keep_s

    def leave(self) -> None:
        self._served -= 1
        self.used = time.clock_gettime(CLOCK)

    def serve(self, frames: Frames, argv: Sequence[str], run_s: float | None) -> None:
        """Do what was asked: a command to its end within `run_s`, or one to talk with."""
        try:
            if run_s is None:
                self._talk(frames, argv)
            else:
                self._run(frames, argv, run_s)
        except HostError as error:
            frames.send(FAILED, tell(error))

    def drop_dead(self) -> None:
        """What has ended by itself need not be kept."""
        with self._lock:
            dead = [talk for talk in self._parked if not talk.waits]
            self._parked = [talk for talk in self._parked if talk not in dead]
        for talk in dead:
            talk.close()

    def close(self) -> None:
        for talk in self._parked:
            talk.close()
        self._channels.close()

    def _run(self, frames: Frames, argv: Sequence[str], run_s: float) -> None:
        with closing(self._channels.open(argv)) as channel:
            frames.send(BEGUN)  # OSError: who asked has gone meanwhile
            stdin = _input(frames)
            threading.Thread(target=_end_with, args=(frames, channel), daemon=True).start()
            for kind, data in _ending(completed(self.name, argv[0], channel, stdin, run_s)):
                frames.send(kind, data)

    def _talk(self, frames: Frames, argv: Sequence[str]) -> None:
        talk = self._waiting(shlex.join(argv)) or Talk(self.name, argv, self._channels)
        is_given_up = False
        try:
            frames.send(BEGUN)  # OSError: who asked has gone meanwhile
            is_given_up = talk.serve(frames)
        finally:
            if is_given_up:
                self._park(talk)
            else:
                talk.close()

    def _waiting(self, command: str) -> Talk | None:
        """One that does the same and waits for its next line, where the host still answers."""
        self.drop_dead()
        with self._lock:
            found = next((talk for talk in self._parked if talk.command == command), None)
            if found:
                self._parked.remove(found)
        if found and not (self._channels.answer() and found.waits):
            found.close()
            return None
        return found

    def _park(self, talk: Talk) -> None:
        with self._lock:
            self._parked.append(talk)
            oldest = self._parked.pop(0) if len(self._parked) > MAX_PARKED else None
        if oldest:
            oldest.close()


class Talk:
    """A command that is talked with by one after the other. What it writes goes to who is there."""

    def __init__(self, host: str, argv: Sequence[str], channels: Channels) -> None:
        self.command = shlex.join(argv)
        self._stream = SshStream(host, argv[0], channels.open(argv))
        self._frames: Frames | None = None
        self._reader: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def waits(self) -> bool:
        return self._stream.waits

    def serve(self, frames: Frames) -> bool:
        """Until they hang up, or give it up for the next one: whether they did that."""
        with self._lock:
            self._frames = frames
            if self._reader is None:
                self._reader = threading.Thread(target=self._read, daemon=True)
                self._reader.start()
        while (frame := frames.next())[0] == INPUT:
            with suppress(HostError):  # who is there reads how it ended
                self._stream.send(frame[1])
        with self._lock:
            self._frames = None
        return frame[0] == KEEP and self.waits

    def close(self) -> None:
        self._stream.close()

    def _read(self) -> None:
        try:
            while not self._rests():
                with suppress(CommandTimedOut):
                    chunk = self._stream.read(LOOK_S)
                    if not chunk:
                        return self._tell(*_ending(self._stream.ended()))
                    self._tell((OUTPUT, chunk))
        except HostError as error:
            self._tell((FAILED, tell(error)))

    def _rests(self) -> bool:
        """Whether nobody is there, so that nothing has to be read until somebody is."""
        with self._lock:
            frames = self._frames
            if frames is None:
                self._reader = None
                return True
        if frames.has_left():  # while what they sent is still on its way
            self.close()
        return False

    def _tell(self, *said: tuple[bytes, bytes]) -> None:
        """Who speaks to nobody, or to one who has gone, is of no further use."""
        frames = self._frames
        try:
            if frames is None:
                return self.close()
            for kind, data in said:
                frames.send(kind, data)
        except OSError:
            self.close()


def _input(frames: Frames) -> bytes:
    """All that a command shall find on its standard input."""
    data = bytearray()
    while (frame := frames.next())[0] == INPUT:
        data += frame[1]
    return bytes(data)


def _end_with(frames: Frames, channel: paramiko.Channel) -> None:
    """Who goes before its end takes a command along."""
    frames.next()
    channel.close()


def _ending(done: Completed) -> list[tuple[bytes, bytes]]:
    output = [(OUTPUT, done.stdout)] if done.stdout else []
    return [*output, (ERRORS, done.stderr), (EXIT, str(done.exit).encode())]
