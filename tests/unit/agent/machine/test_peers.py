"""The list of addresses from which other hosts may connect to a task."""

from __future__ import annotations

import os
import sys

import pytest

from tfdeploy.agent.machine import peers as peers_module
from tfdeploy.agent.machine.peers import MAX_REPORTED, PeerList, as_address, as_source, plain

EVENTS = ("os.rename", "_thread.start_new_thread")
counted: list[str] = []


@pytest.fixture(scope="module")
def counting():
    """Count what is written and started. An audit hook cannot be removed."""
    active = [True]
    sys.addaudithook(lambda event, _: counted.append(event) if active and event in EVENTS else None)
    yield counted
    active.clear()


def listed(file):
    return file.read_text().splitlines()


def test_addresses_of_other_hosts_are_listed(tmp_path):
    file = tmp_path / "peers"
    names = ["192.0.2.7", "::ffff:192.0.2.8", "localhost", "2001:db8::7"]
    peers = PeerList(str(file), names)
    peers.resolve()
    assert listed(file) == ["192.0.2.7", "192.0.2.8", "2001:db8::7"]


def test_a_list_of_addresses_takes_one_write_and_no_thread(tmp_path, counting):
    addresses = [f"198.51.100.{number}" for number in range(1, 100)]
    peers = PeerList(str(tmp_path / "peers"), [*addresses, "2001:db8::7"])
    counting.clear()
    peers.resolve()
    assert counting == ["os.rename"]
    assert len(listed(tmp_path / "peers")) == 100


def test_the_list_exists_before_an_address_is_known(tmp_path):
    PeerList(str(tmp_path / "peers"), ["192.0.2.7"])
    assert listed(tmp_path / "peers") == []


def test_an_address_that_has_proved_itself_is_added(tmp_path):
    file = tmp_path / "peers"
    peers = PeerList(str(file), [])
    peers.add(["198.51.100.1"])
    peers.add(["198.51.100.2", "127.0.0.1", "::1"])
    assert listed(file) == ["198.51.100.1", "198.51.100.2"]


def test_the_file_is_written_only_if_an_address_is_new(tmp_path):
    file = tmp_path / "peers"
    peers = PeerList(str(file), [])
    peers.add(["198.51.100.1"])
    inode = file.stat().st_ino
    with file.open() as held:
        peers.add(["198.51.100.1", "127.0.0.1"])
        assert os.fstat(held.fileno()).st_ino == file.stat().st_ino == inode


@pytest.mark.parametrize("text", ["\0", "", "example.org", "1.2.3", "::1/64", "\ud800"])
def test_what_is_no_address_is_not_added(tmp_path, monkeypatch, text):
    monkeypatch.setattr(peers_module, "_is_local", lambda address: pytest.fail(address))
    peers = PeerList(str(tmp_path / "peers"), [])
    peers.add([text])
    assert as_address(text) == ""
    assert listed(tmp_path / "peers") == []


@pytest.mark.parametrize(
    ("text", "address"),
    [("::ffff:102:304", "1.2.3.4"), ("2001:DB8:0::7", "2001:db8::7"), ("fe80::1%eth0", "fe80::1")],
)
def test_an_address_is_listed_as_the_library_writes_it(text, address):
    assert as_address(text) == address


def test_a_host_that_reports_addresses_without_end_does_not_fill_the_list(tmp_path):
    peers = PeerList(str(tmp_path / "peers"), ["192.0.2.7"])
    peers.resolve()
    for number in range(50):
        peers.add([f"10.0.{number}.{host}" for host in range(10)])
    assert len(listed(tmp_path / "peers")) <= 2 * MAX_REPORTED


def test_a_list_with_ports_has_no_address_without_them(tmp_path):
    file = tmp_path / "peers"
    peers = PeerList(str(file), ["192.0.2.7", "127.0.0.1"], (21000, 21127))
    peers.resolve()
    assert "127.0.0.1 21000 21127" in peers.sources()
    peers.add(["192.0.2.8", "192.0.2.7 21000 21127", "127.0.0.1 9 9"])
    assert listed(file) == ["192.0.2.7 21000 21127"]


@pytest.mark.parametrize("ports", ["0 9", "9 8", "1 65536", "1", "1 2 3", "a b", "-1 9", "1\n2"])
def test_what_are_no_ports_is_no_source(ports):
    assert as_source("192.0.2.7 " + ports) == ""


def test_a_name_without_an_address_admits_nobody(tmp_path):
    peers = PeerList(str(tmp_path / "peers"), ["no-such-host.invalid", "192.0.2.7"])
    peers.resolve()
    assert listed(tmp_path / "peers") == ["192.0.2.7"]


def test_an_address_is_written_as_the_library_writes_it():
    assert plain("::ffff:192.0.2.7") == "192.0.2.7"
    assert plain("fe80::1%eth0") == "fe80::1"
    assert plain("2001:db8::7") == "2001:db8::7"


def test_the_addresses_from_which_this_host_connects_are_known(tmp_path):
    peers = PeerList(str(tmp_path / "peers"), ["127.0.0.1", "no-such-host.invalid"])
    assert peers.sources() == []
    peers.resolve()
    assert peers.sources() == ["127.0.0.1"]
