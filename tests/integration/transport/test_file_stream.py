"""A stream of files is tried again if sshd drops its handshake, and only then."""

from __future__ import annotations

import os

import pytest
from support.host_outputs import ODD_NAMES

from tfdeploy.errors import TransferFailed
from tfdeploy.transport import file_stream
from tfdeploy.transport.file_stream import SEND, SshFileStream
from tfdeploy.transport.rsync import DROPPED

MESSAGE = "kex_exchange_identification: read: Connection reset by peer"
DROP = 'echo >>attempts; if [ "$(wc -l <attempts)" -lt {} ]; then echo "{}" >&2; exit 255; fi; '


@pytest.fixture
def stream(tmp_path, monkeypatch):
    """Return a stream that reads one file after so many attempts have failed with a message."""
    monkeypatch.setattr(file_stream.time, "sleep", lambda seconds: None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("content")

    def start(attempts, message):
        command = ["sh", "-c", DROP.format(attempts + 1, message) + SEND, "sh", str(tmp_path)]
        return SshFileStream("h", command, [("file", 3)], lambda text: bool(DROPPED.search(text)))

    return start


@pytest.mark.parametrize("attempts", [0, 3])
def test_a_dropped_handshake_is_tried_again(stream, attempts):
    found, buffer = stream(attempts, MESSAGE), memoryview(bytearray(100))
    assert bytes(buffer[: found.read_into(buffer)]) == b"tent"
    assert found.read_into(buffer) == 0
    found.close()


@pytest.mark.parametrize(("attempts", "message"), [(4, MESSAGE), (1, "Permission denied")])
def test_another_error_and_a_fourth_drop_are_final(stream, attempts, message):
    found = stream(attempts, message)
    with pytest.raises(TransferFailed, match=message):
        found.read_into(memoryview(bytearray(100)))
    found.close()


def test_a_host_that_closes_its_output_and_does_not_end_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(file_stream, "SILENCE_S", 0.2)
    found = SshFileStream("h", ["sh", "-c", "exec sleep 60 >&-"], [("file", 0)])
    with pytest.raises(TransferFailed, match="does not end"):
        found.read_into(memoryview(bytearray(100)))
    found.close()


def test_what_a_login_shell_prints_is_no_part_of_a_file(tmp_path):
    (tmp_path / "file").write_text("content")
    command = ["sh", "-c", "printf 'Welcome!\n\nToday: '; " + SEND, "sh", str(tmp_path)]
    found, buffer = SshFileStream("h", command, [("file", 0)]), memoryview(bytearray(100))
    assert bytes(buffer[: found.read_into(buffer)]) == b"content"
    found.close()


@pytest.mark.parametrize("command", ["true", "yes"])
def test_a_host_that_sends_no_files_is_given_up(command):
    found = SshFileStream("h", [command], [("file", 0)])
    with pytest.raises(TransferFailed, match="sent no files"):
        found.read_into(memoryview(bytearray(100)))
    found.close()


def test_a_program_that_can_not_be_run_is_named():
    with pytest.raises(TransferFailed, match=r"h: no-such-ssh can't be run on the controller: No "):
        SshFileStream("h", ["no-such-ssh"], [("file", 0)])


def test_many_files_arrive_in_their_order(tmp_path):
    names = [f"file {number}" for number in range(250)]
    for name in names:
        (tmp_path / name).write_text(f"<{name}>")
    files = [(name, 3 if name == "file 120" else 0) for name in names]
    found = SshFileStream("h", ["sh", "-c", SEND, "sh", str(tmp_path)], files)
    received, buffer = b"", memoryview(bytearray(100))
    while size := found.read_into(buffer):
        received += buffer[:size]
    assert received.decode() == "".join(f"<{name}>"[begin:] for name, begin in files)
    found.close()


def test_a_host_that_sends_messages_without_end_is_ended():
    found = SshFileStream("h", ["sh", "-c", "exec yes message >&2"], [("file", 0)])
    with pytest.raises(TransferFailed, match="message; message"):
        found.read_into(memoryview(bytearray(100)))
    found.close()


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("begin", [0, 2])
def test_every_name_that_a_file_can_have_is_read(tmp_path, shell, begin):
    names = [os.fsdecode(name) for name in ODD_NAMES]
    for number, name in enumerate(names):
        (tmp_path / name).write_text(f"--{number:02}")
    command = [shell, "-c", SEND, shell, str(tmp_path)]
    found, buffer = SshFileStream("h", command, [(name, begin) for name in names]), bytearray(1000)
    content = b""
    while size := found.read_into(memoryview(buffer)):
        content += buffer[:size]
    assert content.decode() == "".join(f"--{number:02}"[begin:] for number in range(len(names)))
    found.close()
