"""The contract of tfdeploy/transport/__init__.py, tested with every transport."""

from __future__ import annotations

import hashlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from support.host_outputs import ODD_NAMES
from support.projects import toml
from support.sshd import alive
from support.waiting import until

from tfdeploy.config import inventory
from tfdeploy.errors import CommandTimedOut, TransferFailed
from tfdeploy.transport.daemon.client import DaemonTransport
from tfdeploy.transport.local import LocalTransport
from tfdeploy.transport.openssh.transport import OpenSshTransport
from tfdeploy.transport.ssh.transport import SshTransport

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tfdeploy.transport import Stream, Transport

WORDS = [
    "plain", "", " two  words ", "-n", "--", "semi;colon", "$(echo no)", "`echo no`", "$HOME",
    "it's", 'a "quote"', "back\\slash", "new\nline", "tab\t", "ünï-😀", "*", "~", "a&b|c>d", "!!",
    "#",
]  # fmt: skip
NAMES = [
    "plain.py", "with space", " edges ", "-dash", "#hash", ";semi", "it's", 'a"quote', "$(no)",
    "back\\slash", "star*[a]?", "new\nline", "ünï-😀", ".hidden", "~tilde", "a:b", "%h",
    "sub/deep er/file", "sub/#hash", *map(os.fsdecode, ODD_NAMES),
]  # fmt: skip
BINARY = bytes(range(256)) * 4096
BIG = 5_000_000


@pytest.fixture(scope="module", params=["ssh", "openssh", "daemon", "openssh-daemon", "local"])
def transport(request: pytest.FixtureRequest, base: Path) -> Iterator[Transport]:
    is_local = request.param == "local"
    opened = LocalTransport("one") if is_local else ssh_transport(request, base)
    yield opened
    opened.close()


def ssh_transport(request: pytest.FixtureRequest, base: Path) -> Transport:
    file = base / "contract.toml"
    top = {"project": "p", "ssh_config": str(request.getfixturevalue("ssh_config"))}
    file.write_text(toml({**top, "training": {"command": "true"}, "hosts": {"one": {"ps": 1}}}))
    loaded = inventory.load(file)
    kind = OpenSshTransport if "openssh" in request.param else SshTransport
    direct = kind(loaded.host("one"), loaded)
    is_kept = "daemon" in request.param
    return DaemonTransport(loaded.host("one"), loaded, direct) if is_kept else direct


def read_all(stream: Stream) -> bytes:
    return b"".join(iter(lambda: stream.read(30), b""))


def run(transport: Transport, *argv: str, stdin: bytes = b"", timeout_s: float = 600):
    return transport.run(argv, stdin=stdin, timeout_s=timeout_s)


def python(transport: Transport, code: str, stdin: bytes = b""):
    return run(transport, sys.executable, "-c", code, stdin=stdin)


def test_arguments_arrive_unchanged(transport):
    done = run(transport, "sh", "-c", r'printf "%s\0" "$@"', "sh", *WORDS)
    assert done.stdout.decode().split("\0") == [*WORDS, ""]


def test_a_program_with_an_awkward_path_runs(transport, tmp_path):
    program = tmp_path / "it's a; $(program)"
    program.write_text("#!/bin/sh\necho here\n")
    program.chmod(0o755)
    assert run(transport, str(program)).stdout == b"here\n"


def test_binary_input_arrives_unchanged(transport):
    assert run(transport, "cat", stdin=BINARY).stdout == BINARY


def test_unread_input_does_not_block_a_command(transport):
    assert run(transport, "true", stdin=BINARY * 4).exit == 0


def test_without_input_a_command_reads_an_end_of_file(transport):
    assert run(transport, "cat").stdout == b""


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_a_nonzero_exit_code_is_returned(transport, code):
    assert run(transport, "sh", "-c", f"exit {code}").exit == code


def test_the_exit_code_of_a_killed_command_is_returned(transport):
    assert run(transport, "sh", "-c", "kill -9 $$").exit != 0


def test_output_and_errors_are_separate(transport):
    done = run(transport, "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.exit, done.stdout, done.stderr) == (3, b"out\n", b"err\n")


def test_megabytes_of_output_and_errors_arrive(transport):
    code = f"import os; os.write(2, b'e') and print('o' * {BIG}, file=__import__('sys').stderr)"
    code += f"; print('o' * {BIG}, end='')"
    done = python(transport, code)
    assert (len(done.stdout), len(done.stderr)) == (BIG, BIG + 2)


@pytest.mark.parametrize("script", ["sleep 5", "while echo on; do sleep 0.01; done"])
def test_an_endless_command_times_out_with_the_hosts_name(transport, script):
    with pytest.raises(CommandTimedOut, match=r"one: sh gave no answer within 0.3 s"):
        run(transport, "sh", "-c", script, timeout_s=0.3)


def test_a_transport_works_after_a_timeout(transport):
    with pytest.raises(CommandTimedOut):
        run(transport, "sleep", "5", timeout_s=0.1)
    assert run(transport, "echo", "on").stdout == b"on\n"


def test_a_stream_returns_output_at_once_and_close_ends_its_input(transport):
    stream = transport.stream(["sh", "-c", "echo $$; exec cat"])
    stream.send(b"from the controller\n")
    output = b""
    while b"controller\n" not in output:
        output += stream.read(30)
    pid = int(output.split()[0])
    assert alive(pid)
    stream.close()
    until(lambda: not alive(pid), "the end of cat")


def test_close_ends_a_command_that_still_writes(transport):
    stream = transport.stream(["sh", "-c", "echo $$; while echo on; do sleep 0.05; done"])
    pid = int(stream.read(30).split()[0])
    stream.close()
    until(lambda: not alive(pid), "the end of the command")


def test_a_stream_ends_with_its_command_and_returns_its_result(transport):
    stream = transport.stream(["sh", "-c", "echo last; echo no good >&2; exit 3"])
    assert read_all(stream) == b"last\n"
    result = stream.result()
    assert (result.exit, result.stderr) == (3, b"no good\n")
    stream.close()


def test_a_stream_works_after_a_timeout_of_read(transport):
    stream = transport.stream(["cat"])
    with pytest.raises(CommandTimedOut, match=r"one: cat wrote nothing for 0.2 s"):
        stream.read(0.2)
    stream.send(b"on\n")
    assert stream.read(30) == b"on\n"
    stream.close()


def test_megabytes_of_input_reach_a_stream(transport):
    stream = transport.stream(["sh", "-c", f"head -c {8 * len(BINARY)} | sha256sum"])
    stream.send(memoryview(BINARY * 8))
    assert read_all(stream).split()[0].decode() == hashlib.sha256(BINARY * 8).hexdigest()
    stream.close()


def test_errors_of_a_stream_do_not_block_its_output(transport):
    script = f"head -c {BIG} /dev/zero >&2; echo after"
    stream = transport.stream(["sh", "-c", script])
    assert read_all(stream) == b"after\n"
    stream.close()


def test_awkward_names_are_pushed(transport, tmp_path):
    source, dest = (tmp_path / name for name in ("source", "de st"))
    for name in NAMES:
        write(source / name, ascii(name))
    dest.mkdir()
    transport.push(source, str(dest), NAMES)
    assert {name: (dest / name).read_text() for name in NAMES} == {
        name: ascii(name) for name in NAMES
    }


def test_links_are_pushed_as_links(transport, tmp_path):
    write(tmp_path / "source/sub/file", "x")
    links = {"to-file": "sub/file", "to-folder": "sub", "to-nothing": "absent"}
    for name, target in links.items():
        (tmp_path / "source" / name).symlink_to(target)
    dest = tmp_path / "dest"
    dest.mkdir()
    transport.push(tmp_path / "source", str(dest), ["sub/file", *links])
    assert {name: os.readlink(dest / name) for name in links} == links


def test_only_named_files_are_pushed(transport, tmp_path):
    for name in ("yes", "no"):
        write(tmp_path / "source" / name, name)
    write(tmp_path / "dest/other", "left alone")
    transport.push(tmp_path / "source", str(tmp_path / "dest"), ["yes"])
    assert sorted(os.listdir(tmp_path / "dest")) == ["other", "yes"]


def test_only_equal_files_are_copied_from_the_base(transport, tmp_path):
    source, neighbour, dest = (tmp_path / name for name in ("source", "neighbour", "dest"))
    for folder in (source, neighbour):
        write(folder / "same", "same", time=1)
        write(folder / "changed", folder.name, time=1 if folder == source else 2)
    dest.mkdir()
    transport.push(source, str(dest), ["same", "changed"], base=str(neighbour))
    assert [(dest / name).read_text() for name in ("same", "changed")] == ["same", "source"]
    assert (neighbour / "changed").read_text() == "neighbour"


@pytest.mark.parametrize("where", ["dest", "neighbour"])
def test_checksum_finds_changes_that_keep_size_and_time(transport, tmp_path, where):
    for folder, text in (("source", "right"), (where, "wrong")):
        write(tmp_path / folder / "file", text, time=1)
    dest = tmp_path / "dest"
    dest.mkdir(exist_ok=True)
    base = str(tmp_path / "neighbour") if where == "neighbour" else None
    transport.push(tmp_path / "source", str(dest), ["file"], base=base, checksum=True)
    assert (dest / "file").read_text() == "right"


def test_progress_is_reported_in_bytes_with_the_current_file(transport, tmp_path, monkeypatch):
    monkeypatch.setenv("LC_ALL", "C")  # in which rsync would escape names
    names = ["a, 5% of é", "sub/b"]
    for name in names:
        write(tmp_path / "source" / name, "x" * BIG)
    (tmp_path / "dest").mkdir()
    calls: list[tuple[str, int]] = []
    source, dest = tmp_path / "source", tmp_path / "dest"
    transport.push(source, str(dest), names, on_progress=lambda *call: calls.append(call))
    assert {file for file, _ in calls} == {*names}
    assert [size for _, size in calls] == sorted(size for _, size in calls)
    assert calls[-1] == ("sub/b", 2 * BIG)


def test_a_host_sends_files_one_after_the_other_from_a_byte_on(transport, tmp_path):
    source = tmp_path / "sour ce"
    names = [name for name in NAMES if name.isprintable()]
    for name in names:
        write(source / name, "")
        (source / name).write_bytes(name.encode() + BINARY)
    begins = [number * 1_000 for number in range(len(names))]
    stream = transport.send_files(str(source), [*zip(names, begins, strict=True)])
    contents = [(source / name).read_bytes() for name in names]
    expected = b"".join(content[begin:] for content, begin in zip(contents, begins, strict=True))
    assert hashlib.sha256(received(stream)).digest() == hashlib.sha256(expected).digest()
    stream.close()


@pytest.mark.parametrize("folder", ["source", "absent"])
def test_a_missing_file_can_not_be_sent(transport, tmp_path, folder):
    write(tmp_path / "source/file", "x")
    stream = transport.send_files(str(tmp_path / folder), [("file", 0), ("absent", 0)])
    with pytest.raises(TransferFailed, match=r"one: .*absent"):
        received(stream)
    stream.close()


def received(stream) -> bytes:
    buffer, data = memoryview(bytearray(1 << 20)), bytearray()
    while size := stream.read_into(buffer):
        data += buffer[:size]
    return bytes(data)


def test_a_missing_file_can_not_be_pushed(transport, tmp_path):
    (tmp_path / "dest").mkdir()
    with pytest.raises(TransferFailed, match=r"one: .*absent"):
        transport.push(tmp_path, str(tmp_path / "dest"), ["absent"])


def test_concurrent_calls_do_not_mix(transport, tmp_path):
    write(tmp_path / "source/file", "x")

    def push_and_run(number: int) -> bytes:
        (tmp_path / f"dest-{number}").mkdir()
        transport.push(tmp_path / "source", str(tmp_path / f"dest-{number}"), ["file"])
        return run(transport, "cat", stdin=str(number).encode() * 50_000).stdout

    with ThreadPoolExecutor(6) as pool:
        outputs = list(pool.map(push_and_run, range(6)))
    assert outputs == [str(number).encode() * 50_000 for number in range(6)]


def write(file: Path, text: str, time: int | None = None) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    if time is not None:
        os.utime(file, (time, time))
