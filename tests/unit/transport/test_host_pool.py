"""A host that was silent is given up earlier for a while; one that is back is not."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace

import paramiko
import pytest

from tfdeploy.transport.daemon import host_pool
from tfdeploy.transport.daemon.host_pool import SILENT_S, HostPool
from tfdeploy.transport.ssh import connection
from tfdeploy.transport.ssh.config import Route, SshConfig
from tfdeploy.transport.ssh.dial import IMPATIENT, PATIENT, HostSilent, NoAnswer
from tfdeploy.transport.ssh.errors import NO_ANSWER


class Site:
    """A host, whose next answers the test sets, and a clock."""

    def __init__(self):
        self.now_s = 1000.0
        self.error = None
        config = SshConfig("one", "user", 22, (), True, None, None, (), None, None)
        self.pool = HostPool(Route("one", config, ()).to_json())

    def connect(self, route, accept_new, patience):
        self.patience = patience
        if self.error:
            raise self.error
        return object()

    def ask(self, error=None):
        """Return the patience with which the host is tried."""
        self.error = error
        with suppress(TimeoutError):
            self.pool._connect()
        return self.patience


@pytest.fixture
def site(monkeypatch):
    site = Site()
    monkeypatch.setattr(host_pool, "connect", site.connect)
    clock = SimpleNamespace(clock_gettime=lambda which: site.now_s)
    monkeypatch.setattr(host_pool, "time", clock)
    return site


def test_a_silent_host_is_given_up_earlier_for_a_while(site):
    assert site.ask(HostSilent(3.5)) is PATIENT
    assert site.ask(HostSilent(1)) is IMPATIENT
    site.now_s += SILENT_S + 1
    assert site.ask() is PATIENT


def test_commands_do_not_prolong_how_long_a_host_is_given_up_earlier(site):
    site.ask(HostSilent(3.5))
    for _ in range(3):
        site.now_s += SILENT_S / 4
        assert site.ask(HostSilent(1)) is IMPATIENT
    site.now_s += SILENT_S / 2
    assert site.ask() is PATIENT


def test_a_host_that_accepts_a_connection_is_not_silent(site):
    site.ask(NoAnswer(10))
    assert site.ask() is PATIENT


def test_a_host_that_begins_no_handshake_is_not_silent():
    """Its kernel has accepted the connection."""

    def begin():
        raise paramiko.SSHException(NO_ANSWER)

    client = SimpleNamespace(get_transport=lambda: None, close=lambda: None)
    busy = SimpleNamespace(open=begin, client=client, connect_timeout=10.0)
    with pytest.raises(NoAnswer, match="no answer within 10 s") as error:
        connection._open(busy, None)
    assert not isinstance(error.value, HostSilent)


def test_a_host_that_was_silent_has_as_long_for_its_handshake():
    assert IMPATIENT.handshake_s == PATIENT.handshake_s


def test_a_host_that_answers_again_is_not_silent_anymore(site):
    site.ask(HostSilent(3.5))
    site.ask()
    assert site.ask() is PATIENT
