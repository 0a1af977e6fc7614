"""Names of files and runs in every locale: real characters where the terminal has them, else escape
sequences, and never an exception."""

from __future__ import annotations

import codecs
import io
import locale
import os
import sys

from tfdeploy.formatting.humanize import write_out

UTF8 = "utf-8"
ERRORS = "tfdeploy.write_out"


def prepare() -> None:
    """Read names as UTF-8, whatever the locale, and let both standard streams print any text."""
    if sys.getfilesystemencoding() != UTF8:
        # In Python's UTF-8 mode, which it chooses by itself only for the locales C and POSIX.
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    codecs.register_error(ERRORS, _write_out)
    keeps_own = "utf8" not in sys._xoptions or "PYTHONIOENCODING" in os.environ
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # it is None if it was closed
            encoding = stream.encoding if keeps_own else locale.getencoding()
            stream.reconfigure(encoding=encoding, errors=ERRORS)


def _write_out(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(write_out, error.object[error.start : error.end])), error.end
