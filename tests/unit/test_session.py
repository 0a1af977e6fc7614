"""A talk with an agent that takes nothing, or says nothing, has an end."""

from __future__ import annotations

import sys
import time

import pytest

from tfdeploy import session
from tfdeploy.errors import CommandTimedOut, HostError
from tfdeploy.session import Session
from tfdeploy.transport.local import LocalTransport

MUCH = [memoryview(bytes(1 << 20))] * 3
DEAF = ["sleep", "60"]


@pytest.fixture
def talk():
    begun = []

    def begin(argv):
        begun.append(Session("here", LocalTransport("here").stream(argv)))
        return begun[-1]

    yield begin
    for one in begun:
        one.close()


@pytest.mark.slow
@pytest.mark.parametrize("question", [b"short", b"long" * 100_000])
def test_one_that_takes_nothing_is_given_up(talk, monkeypatch, question):
    monkeypatch.setattr(session, "STUCK_S", 0.3)
    deaf, began = talk(DEAF), time.monotonic()
    with pytest.raises(HostError):
        deaf.ask(question, MUCH)
    with pytest.raises(CommandTimedOut, match=r"the agent took nothing for 0\.3 s"):
        deaf.answer(60.0)
    assert time.monotonic() - began < 10


def test_one_that_takes_its_time_is_not(talk, monkeypatch):
    """The limit is for each part of what is sent."""
    monkeypatch.setattr(session, "STUCK_S", 1.0)
    code = "import os, time, sys\nleft = 3 << 20\nwhile left:\n"
    code += "    left -= len(os.read(0, min(left, 1 << 16)))\n    time.sleep(0.03)\n"
    slow = talk([sys.executable, "-S", "-c", f"{code}print('{session.MARK}{{}}')"])
    slow.ask(b"", MUCH)
    assert slow.answer(30.0) == {}


def test_one_that_says_nothing_is_given_up(talk):
    deaf = talk(DEAF)
    deaf.ask(b"short")
    with pytest.raises(CommandTimedOut, match=r"gave no answer within 0\.2 s"):
        deaf.answer(0.2)
