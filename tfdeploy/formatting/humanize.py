"""Write sizes, durations, counts and lists of names for people. Pure."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING

from tfdeploy.formatting.hostlist import MAX_LISTED, fold_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

KILO = 1000
NO_BYTE = re.compile("[\ud800-\udc7f\udd00-\udfff]")  # what os.fsdecode never returns
MAX_NAMES_WIDTH = 40  # characters for names that share a line with other text
URL = re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]*://)(?:[^/\s@\"']*@)?([^/\s?#\"']*)[^\s\"']*")


def escape_control(text: str, kept: str = "\n\t") -> str:
    """Return `text` with its control characters, such as terminal escapes, written out, except
    those in `kept`."""
    if text.isprintable():  # almost every line of a log
        return text
    return "".join(char if char.isprintable() or char in kept else write_out(char) for char in text)


def write_out(char: str) -> str:
    r"""Return a character as Python writes it in ASCII, such as `\x1b`; a byte that is no UTF-8, as
    os.fsdecode returns it, as the byte."""
    return f"\\x{ord(char) - 0xDC00:02x}" if "\udc80" <= char <= "\udcff" else ascii(char)[1:-1]


def escape_json(text: str) -> str:
    r"""Return a JSON document with `\u....` for each character that is not printable."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text
    )


def escape_line(text: str) -> str:
    """Return `text` with all control characters written out: a name from a host can't look like a
    row of its own, nor move the columns after it."""
    return escape_control(text, kept="")


def escape_log_line(text: str) -> str:
    """Return `text` as `escape_line`, but with its tabs."""
    return escape_control(text, kept="\t")


def quote_word(text: str) -> str:
    """Return `text` as one word of a command that bash, zsh and ksh read, in one line; bytes that
    are no UTF-8, as os.fsdecode returns them, are read as they were."""
    if text.isprintable():
        return shlex.quote(text)
    text = NO_BYTE.sub("?", text)
    data = text.encode(errors="surrogateescape").decode("latin-1")
    escaped = (c if " " <= c <= "~" and c not in "\\'" else f"\\{ord(c):03o}" for c in data)
    return f"$'{''.join(escaped)}'"


def quote_path(path: str) -> str:
    """Return a path as `quote_word` does, such that no command takes it for an option."""
    return quote_word(f"./{path}" if path.startswith("-") else path)


def mask_urls(text: str) -> str:
    """Return `text` with only the scheme and the host of each URL: the rest may be a password."""
    return URL.sub(r"\1\2/***", text)


def format_size(count: int) -> str:
    """Return a number of bytes such as `15.2 MB`."""
    if count < KILO:
        return f"{count} B"
    value = float(count)
    for unit in ("kB", "MB", "GB", "TB"):  # noqa: B007
        value /= KILO
        if round(value, 1) < KILO:
            break
    return f"{value:.1f} {unit}"


def format_bit_rate(bits_s: float) -> str:
    """Return what a network moves in a second, such as `94 Mbit/s` or `9.4 Gbit/s`."""
    for unit in ("kbit/s", "Mbit/s"):
        bits_s /= KILO
        if bits_s < KILO:
            return f"{bits_s:.{0 if bits_s >= 10 else 1}f} {unit}"
    return f"{bits_s / KILO:.1f} Gbit/s"


def format_duration(seconds: float) -> str:
    """Return `42s`, `3m 05s`, `2h 10m` or `4d 3h`."""
    whole = int(seconds)
    days, hours, minutes = whole // 86400, whole % 86400 // 3600, whole % 3600 // 60
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes:02}m"
    return f"{minutes}m {whole % 60:02}s" if minutes else f"{whole}s"


def ends_text(seconds: float) -> str:
    """Return when max_duration_s ends a run, which then is stopped, however far it is."""
    return f"ends at the latest in {format_duration(seconds)}"


def format_numbers(numbers: Iterable[int]) -> str:
    """Return `0,1`; more than three numbers as `0-3,6`."""
    texts = [str(number) for number in numbers]
    return fold_names(texts).strip("[]") if len(texts) > MAX_LISTED else ",".join(texts)


def format_count(count: int, noun: str) -> str:
    """Return `1 host` or `2 hosts`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def format_job_counts(jobs: Mapping[str, int]) -> str:
    """Return the number of tasks of each job: `1 ps, 2 workers`."""
    return ", ".join(
        f"{count} ps" if job == "ps" else format_count(count, job) for job, count in jobs.items()
    )


def shorten_names(names: Sequence[str]) -> str:
    """Return all names if they fit into a line with other text; else the first, and how many more
    there are."""
    text = fold_names(names)
    return text if len(text) <= MAX_NAMES_WIDTH else f"{names[0]} and {len(names) - 1} more"


def or_dash(value: int | None) -> str:
    """Return the number, or `-` if it is unknown."""
    return "-" if value is None else str(value)
