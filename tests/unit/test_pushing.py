"""How far a push is: readable for three hosts, and for a thousand."""

from __future__ import annotations

import re
import threading
from io import StringIO

import pytest
from rich.console import Console

from tfdeploy import pushing
from tfdeploy.errors import TransferFailed, Unreachable
from tfdeploy.pushing import BARS, Tally
from unit.made import eventually

MANY = [f"gpu{n:03}" for n in range(1, 1001)]


def tally(hosts=MANY, done=0, unreachable=0, failed=0):
    found = Tally(hosts)
    for host in hosts[:done]:
        found(host, 1.0)
    for host in hosts[done : done + unreachable]:
        found.failed(Unreachable(host, "gone"))
    for host in hosts[done + unreachable : done + unreachable + failed]:
        found.failed(TransferFailed(host, "no room"))
    return found


@pytest.mark.parametrize(
    ("where", "line"),
    [
        ({}, "1000 to go"),
        ({"done": 950, "unreachable": 13}, "gpu[001-950] done · 37 to go · 13 unreachable"),
        ({"done": 990, "unreachable": 7, "failed": 3},
         "gpu[001-990] done · 7 unreachable · 3 failed"),
        ({"done": 1000}, "gpu[001-1000] done"),
    ],
)  # fmt: skip
def test_one_line_says_where_all_hosts_are(where, line):
    assert tally(**where).line == line


def test_what_is_too_scattered_to_be_named_is_counted():
    found = tally()
    for host in MANY[::2]:
        found(host, 1.0)
    assert found.line == "500 done · 500 to go"


def test_a_host_that_gets_a_second_thing_is_not_done_any_more():
    found = tally(done=1000)
    found(MANY[0], 0.5)
    assert found.line == "gpu[002-1000] done · 1 to go"


@pytest.fixture
def terminal():
    return Console(file=StringIO(), force_terminal=True, width=60, soft_wrap=True)


def seen(console):
    """What was on the terminal at any time, line by line."""
    return re.split(r"[\r\n]+", re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", console.file.getvalue()))


def test_few_hosts_have_a_bar_each_on_a_terminal(terminal):
    with pushing.shown(terminal, MANY[:BARS]) as told:
        told(MANY[0], 1.0)
        told.failed(Unreachable(MANY[1], "gone"))
        assert eventually(lambda: any("100%" in line for line in seen(terminal)))
    assert all(any(host in line for line in seen(terminal)) for host in MANY[:BARS])


def test_many_hosts_have_one_line_on_a_terminal(terminal):
    with pushing.shown(terminal, MANY) as told:
        for host in MANY[:950]:
            told(host, 1.0)
        line = "gpu[001-950] done · 50 to go"
        assert eventually(lambda: line in seen(terminal))
    assert all(len(line) <= 60 for line in seen(terminal))


def test_elsewhere_few_hosts_are_silent():
    console = Console(file=StringIO())
    with pushing.shown(console, MANY[:BARS]) as told:
        told(MANY[0], 1.0)
    assert console.file.getvalue() == ""


def test_elsewhere_many_hosts_give_a_line_now_and_then(monkeypatch):
    """From however many threads they are told."""
    console = Console(file=StringIO())
    with pushing.shown(console, MANY) as told:
        for host in MANY[:100]:
            told(host, 1.0)
        assert console.file.getvalue() == ""
        monkeypatch.setattr(pushing, "LINE_S", 0.0)
        threads = [threading.Thread(target=told, args=(host, 1.0)) for host in MANY[100:110]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert "gpu[001-110] done · 890 to go\n" in console.file.getvalue()
