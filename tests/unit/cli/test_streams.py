"""What the standard streams print in a locale that lacks characters."""

from __future__ import annotations

import io
from contextlib import redirect_stdout

import pytest

from tfdeploy.cli.streams import WRITE_OUT
from tfdeploy.output.console import print_json
from tfdeploy.output.stream import TextStream

NAME = "naïve 漢 \udcff"


def printed_in(name, print_name):
    """Return the bytes that are printed to a stream with an encoding."""
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, name, WRITE_OUT)
    with redirect_stdout(stream):
        print_name()
        stream.flush()
    return written.getvalue()


@pytest.mark.parametrize("print_name", [lambda: TextStream().print(NAME), lambda: print(NAME)])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ascii", r"na\xefve \u6f22 \xff"),
        ("latin-1", r"naïve \u6f22 \xff"),
        ("utf-8", r"naïve 漢 \xff"),
    ],
)
def test_a_character_that_the_locale_lacks_is_escaped(name, text, print_name):
    assert printed_in(name, print_name) == f"{text}\n".encode(name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ascii", r"na\u00efve \u6f22 \udcff"),
        ("latin-1", r"na\u00efve \u6f22 \udcff"),
        ("utf-8", r"naïve 漢 \udcff"),
    ],
)
def test_a_document_stays_json(name, text):
    expected = f'[\n "{text}"\n]\n'.encode()
    assert printed_in(name, lambda: print_json([NAME])) == expected
