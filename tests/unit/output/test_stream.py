"""Without a terminal a stream prints the same as Rich, and does not load it."""

from __future__ import annotations

import re
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tfdeploy
from tfdeploy.output.stream import TextStream

# Rich also drops or expands control characters; wide characters take two columns of a terminal.
PRINTABLE, CONTROL = "ab [/]\\:日é👍\u0301…", "\n\t\r\x07\x1b\u202e\udcff"


def cells_of(characters):
    texts = st.text(st.sampled_from(characters), max_size=12)
    return st.one_of(texts, st.tuples(texts, st.sampled_from(["bold red", "default", "dim"])))


cells = cells_of(PRINTABLE + CONTROL)


def printed(show, *, by_rich):
    with pytest.MonkeyPatch.context() as environment, redirect_stdout(StringIO()) as out:
        environment.delenv("FORCE_COLOR", raising=False)
        environment.delenv("TTY_COMPATIBLE", raising=False)
        if by_rich:
            environment.setenv("TTY_COMPATIBLE", "0")  # Rich decides, and takes it for no terminal
        stream = TextStream()
        show(stream)
        assert ("rich" in vars(stream)) == by_rich
    return out.getvalue()


def assert_prints_as_rich(show):
    assert printed(show, by_rich=False) == printed(show, by_rich=True)


@given(st.lists(cells_of(PRINTABLE + CONTROL), max_size=3))
@example(["a\n", "\u2028b\x85"])
@example(["x" * 1000])
def test_text_is_printed_as_by_rich_in_one_line(parts):
    assert_prints_as_rich(lambda stream: stream.print(*parts))
    assert printed(lambda stream: stream.print(*parts), by_rich=False)[:-1].isprintable()


def test_text_reaches_a_stream_only_by_what_escapes_it():
    """Log lines, which have colours and tabs, are escaped where they are printed."""
    package = Path(tfdeploy.__file__).parent
    unescaped = re.compile(r"\.(out|err|progress_stream)\.(write|rich\.print)\(")
    offenders = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if unescaped.search(file.read_text())
    }
    assert offenders == {"output/log_lines.py"}  # _print_lines and _print_styled


@given(st.lists(st.lists(cells, min_size=1, max_size=4), max_size=4))
def test_a_table_is_printed_as_by_rich(rows):
    """A row may have fewer cells than the table has columns."""

    def show(stream):
        columns = ("TASK", "LISTENS ON", "", "CHIEF")[: max(map(len, rows), default=3)]
        stream.print_table(columns, [dict(zip(columns, row, strict=False)) for row in rows])

    assert_prints_as_rich(show)


@pytest.mark.parametrize("missing", ["TASK", "HOST", "STATE"])
def test_a_missing_cell_is_empty_and_moves_no_other(capsys, missing):
    columns = ("TASK", "HOST", "STATE")
    cells = {"TASK": "ps:0", "HOST": "cpu-1", "STATE": "READY"}
    rows = [cells, {name: text for name, text in cells.items() if name != missing}]
    TextStream().print_table(columns, rows)
    header, _, line = capsys.readouterr().out.splitlines()
    begins = [header.index(name) for name in columns]
    found = [line[a:b].strip() for a, b in zip(begins, [*begins[1:], None], strict=True)]
    assert found == ["" if name == missing else cells[name] for name in columns]


def test_a_cell_cannot_look_like_a_row_of_its_own(capsys):
    TextStream().print_table(["RUN", "RESULT"], [{"RUN": "a\nb\x1b[1m", "RESULT": "failed"}])
    assert capsys.readouterr().out.splitlines()[1:] == [r"a\nb\x1b[1m  failed"]


def test_a_style_is_shown_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = TextStream()
    stream.print(("READY", "green"), " ps:0")
    stream.print_table(["STATE"], [{"STATE": ("FAILED", "bold red")}])
    out = capsys.readouterr().out
    assert "\x1b[32mREADY\x1b[0m ps:0\n" in out
    assert "\x1b[1;31mFAILED\x1b[0m" in out


def test_a_quiet_stream_prints_nothing(capsys):
    stream = TextStream(quiet=True)
    stream.print("text")
    assert not stream.is_terminal
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("replace", [redirect_stdout, redirect_stderr])
def test_a_stream_that_is_closed_prints_nothing(replace):
    with replace(None):
        TextStream(stderr=replace is redirect_stderr).print("text")


def test_a_stream_that_was_closed_during_the_command_prints_nothing():
    closed = StringIO()
    closed.close()
    with redirect_stdout(closed):
        TextStream().print("text")
