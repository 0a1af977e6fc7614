"""A session with an agent that does not read, does not answer, or answers without end, ends."""

from __future__ import annotations

import sys
import time

import pytest

from tfdeploy.errors import AgentError, CommandFailed, CommandTimedOut, HostError
from tfdeploy.hosts import agent_session
from tfdeploy.hosts.agent_session import Session
from tfdeploy.transport.local import LocalTransport

PAYLOAD = [memoryview(bytes(1 << 20))] * 3
SLEEP = ["sleep", "60"]
LIMIT = 1 << 20
MARK = agent_session.MARK


@pytest.fixture
def connect():
    sessions = []

    def connect_to(argv, *stuck_s):
        sessions.append(Session("here", LocalTransport("here").stream(argv), *stuck_s))
        return sessions[-1]

    yield connect_to
    for session in sessions:
        session.close()


def python(code):
    return [sys.executable, "-S", "-c", code]


@pytest.mark.slow
@pytest.mark.parametrize("query", [b"short", b"long" * 100_000], ids=["short", "long"])
def test_an_agent_that_reads_nothing_is_given_up(connect, query):
    session, started = connect(SLEEP, 0.3), time.monotonic()
    with pytest.raises(HostError):
        session.write(query, PAYLOAD)
    with pytest.raises(CommandTimedOut, match=r"the agent read nothing for 0\.3 s"):
        session.answer(60.0, LIMIT)
    assert time.monotonic() - started < 60


def test_an_agent_that_reads_slowly_is_not_given_up(connect):
    """The limit is for each part of what is sent."""
    parts = [
        memoryview(bytes(1 << 17))
    ] * 25  # each takes 0.1 s, all together longer than the limit
    code = f"import os, time\nleft = {len(parts) << 17}\nwhile left:\n"
    code += "    left -= len(os.read(0, min(left, 1 << 16)))\n    time.sleep(0.05)\n"
    session = connect(python(f"{code}print('{MARK}{{}}')"), 2.0)
    session.write(b"", parts)
    assert session.answer(60.0, LIMIT) == {}


def test_an_agent_that_does_not_answer_is_given_up(connect):
    session = connect(SLEEP)
    session.write(b"short")
    with pytest.raises(CommandTimedOut, match=r"gave no answer within 0\.2 s"):
        session.answer(0.2, LIMIT)


def test_lines_that_are_no_answer_do_not_extend_the_time(connect):
    session = connect(python("import time\nwhile not time.sleep(0.01): print('no answer')"))
    with pytest.raises(CommandTimedOut, match=r"gave no answer within 0\.5 s"):
        session.answer(0.5, 1 << 40)


@pytest.mark.parametrize("line", ["'no answer\\n'", "'x' * 100"], ids=["many lines", "one line"])
def test_output_without_end_is_refused_before_it_fills_the_memory(connect, line):
    session = connect(python(f"import sys\nwhile True: sys.stdout.write({line})"))
    with pytest.raises(
        CommandFailed, match=r"runs no command: it prints without end: (no answer|x)"
    ):
        session.answer(None, LIMIT)


def test_an_answer_without_end_is_refused_before_it_fills_the_memory(connect):
    code = f"import sys\nsys.stdout.write('{MARK}')\nwhile True: sys.stdout.write('x' * 100)"
    with pytest.raises(AgentError, match=f"invalid answer: more than {LIMIT} bytes"):
        connect(python(code)).answer(None, LIMIT)


@pytest.mark.parametrize("answer", [f"{'[' * 100_000}", "[1]", "{", "9" * 5000])
def test_an_answer_that_is_no_json_object_is_refused(connect, answer):
    session = connect(python(f"print('{MARK}' + {answer!r})"))
    with pytest.raises(AgentError, match="invalid answer: expected a JSON object"):
        session.answer(60.0, LIMIT)


def test_the_cost_of_a_line_does_not_grow_with_its_length_squared():
    """Twice the length, in small parts, costs about twice: 3 leaves room for other processes."""

    def cpu_s(parts):
        started = time.process_time()
        session = Session("here", None)
        for _ in range(parts):
            session._split(b"x" * 1000)
        session._split(b"\n")
        assert len(session._lines.pop()) == parts * 1000
        return time.process_time() - started

    ratio = min(cpu_s(40_000) / cpu_s(20_000) for _ in range(5))
    assert ratio < 3
