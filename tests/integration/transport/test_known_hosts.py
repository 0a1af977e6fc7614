"""known_hosts: the lines that match a host, compared with ssh-keygen -F."""

from __future__ import annotations

import base64
import shutil
import struct
import subprocess
import time
from itertools import count

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tfdeploy.transport.ssh.known_hosts import look_up_keys

KIND = "ssh-ed25519"


def key(number=1, kind=KIND):
    parts = (kind.encode(), bytes([number]) * 32)
    blob = b"".join(struct.pack(">I", len(part)) + part for part in parts)
    return f"{kind} {base64.b64encode(blob).decode()}"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """An iterator of paths: tfdeploy keeps what it has parsed by a file's name, size and time."""
    folder = tmp_path_factory.mktemp("files")
    return (folder / str(number) for number in count())


@pytest.fixture
def file(tmp_path):
    return tmp_path / "known_hosts"


@pytest.mark.parametrize(
    ("names", "host"),
    [
        ("gpu-1", "gpu-1"), ("gpu-1,gpu-2", "gpu-2"), ("gpu-*", "gpu-1"), ("gpu-?", "gpu-12"),
        ("gpu-*,!gpu-1", "gpu-1"), ("GPU-1", "gpu-1"), ("[gpu-1]:2200", "[gpu-1]:2200"),
        ("[gpu-1]:2200", "gpu-1"), ("10.0.0.1", "10.0.0.10"),
    ],
)  # fmt: skip
def test_patterns_match_as_in_ssh(file, names, host):
    file.write_text(f"{names} {key()}\n")
    found = subprocess.run(["ssh-keygen", "-F", host, "-f", file], capture_output=True)
    assert bool(look_up_keys([file], [host]).keys) == bool(found.stdout)


@given(
    names=st.text(st.sampled_from("aAb-*?.[],!"), min_size=1, max_size=8),
    host=st.text(st.sampled_from("ab-.[]"), min_size=1, max_size=4),
)
@example(names="a" * 1022 + "*,a", host="a")
@example(names="a" * 1021 + "*,a", host="a")
@example(names="!*b,*a*?a", host="aaba")
def test_any_pattern_matches_as_in_ssh(files, names, host):
    file = next(files)
    file.write_text(f"{names} {key()}\n")
    found = subprocess.run(["ssh-keygen", "-F", host, "-f", file], capture_output=True)
    assert bool(look_up_keys([file], [host]).keys) == bool(found.stdout)


@pytest.mark.parametrize("names", ["*a" * 14 + "b", "*?" * 400 + "b", "*" * 1000 + "b"])
def test_a_pattern_is_matched_in_linear_time(file, names):
    file.write_text(f"{names} {key()}\n")
    start = time.thread_time()
    assert not look_up_keys([file], ["a" * 250]).keys
    assert time.thread_time() - start < 30


def test_a_file_without_end_has_no_keys(file):
    file.symlink_to("/dev/zero")
    assert look_up_keys([file], ["gpu-1"]).keys == ()


@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="no ssh-keygen")
def test_hashed_names_match(file):
    file.write_text(f"gpu-1 {key()}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", file], check=True, capture_output=True)
    assert file.read_text().startswith("|1|")
    assert look_up_keys([file], ["gpu-1"]).keys
    assert not look_up_keys([file], ["gpu-2"]).keys


def test_a_host_on_another_port_is_also_found_by_its_name(file):
    file.write_text(f"gpu-1 {key(1)}\n[gpu-2]:2200 {key(2)}\ngpu-2 {key(3)}\n")
    assert look_up_keys([file], ["[gpu-1]:2200", "gpu-1"]).keys[0].blob[-1] == 1
    assert [line.blob[-1] for line in look_up_keys([file], ["[gpu-2]:2200", "gpu-2"]).keys] == [2]


def test_markers_are_not_names(file):
    file.write_text(f"@revoked gpu-1 {key(1)}\n@cert-authority gpu-* {key(2)}\n")
    found = look_up_keys([file], ["gpu-1"])
    assert (found.keys, len(found.revoked), found.authority) == ((), 1, True)
    other = look_up_keys([file], ["ps-1"])
    assert (other.revoked, other.authority) == (frozenset(), False)


@pytest.mark.parametrize(
    "line",
    ["gpu-1", "gpu-1 ssh-rsa", "gpu-1 ssh-rsa AAA%", "gpu-1 ssh-rsa AAAA", f"@new gpu-1 {key()}",
     f"gpu-1 ssh-rsa {key().split()[1]}", "@revoked", "|1|x|y ssh-rsa"],
)  # fmt: skip
def test_an_unreadable_line_is_reported_and_hides_no_other(file, line):
    file.write_text(f"# mine\n\n{line}\ngpu-1 {key()} a comment\n")
    found = look_up_keys([file, file.with_name("absent")], ["gpu-1"])
    assert len(found.keys) == 1
    assert found.unreadable_lines == (f"{file} line 3",)


def test_a_key_of_an_unknown_type_is_readable(file):
    file.write_text(f"gpu-1 {key(kind='sk-ssh-ed25519@openssh.com')}\n")
    assert look_up_keys([file], ["gpu-1"]).unreadable_lines == ()
