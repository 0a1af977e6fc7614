"""Hide secrets: a report is made to be sent to somebody. Pure.

Variables keep their names. Their values are hidden unless they are plain numbers or switches,
because `env` in hosts.toml may have any secret. A value that its name says to be secret is hidden
wherever it occurs, in logs, reasons and commands.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tfdeploy.config.cluster import JOBS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tfdeploy.config.inventory import Inventory

HIDDEN = "(hidden)"
MIN_SECRET = 4  # characters; shorter values would hide parts of other words
SECRET_WORDS = "key|token|secret|passw|passphrase|credential|auth|cookie|bearer|private"
SECRET_NAME = re.compile(SECRET_WORDS, re.I)
# A literal that a program, or a file of settings, gives to such a name: API_KEY = "…".
LITERAL = re.compile(
    rf"((?:{SECRET_WORDS})\w{{0,20}}[\"'\]]{{0,2}} ?[:=] ?)([\"'])[^\"'\s]{{8,}}\2", re.I
)
HARMLESS = re.compile(r"[-+]?[0-9.]{1,8}|true|false|yes|no|on|off|", re.I)
ASSIGNMENT = re.compile(r"(?P<name>-{0,2}[\w.-]+)=(?P<value>.+)", re.S)
PASSWORD_IN_URL = re.compile(r"(://[^\s/:@]*):[^\s/@]+@")
TOKEN_IN_URL = re.compile(
    r"(://)[^\s/:@]{20,}(?=(?::[^\s/@]*)?@)"
    rf"|([?&][\w-]*(?:{SECRET_WORDS}|sig)[\w-]*=)[^\s&#\"']+",
    re.I,
)


def show_variable(name: str, value: str) -> str:
    """Return a variable's value if it is harmless."""
    is_harmless = HARMLESS.fullmatch(value) and not SECRET_NAME.search(name)
    return value if is_harmless else HIDDEN


def show_words(words: Sequence[str]) -> list[str]:
    """Return words of a command line, without the values of options such as --api-key."""
    shown, is_secret = [], False
    for word in words:
        assignment = ASSIGNMENT.fullmatch(word)
        if is_secret and not word.startswith("-"):
            shown.append(HIDDEN)
        elif assignment and SECRET_NAME.search(assignment["name"]):
            shown.append(f"{assignment['name']}={HIDDEN}")
        else:
            shown.append(hide_in_urls(word))
        is_secret = bool(word.startswith("-") and not assignment and SECRET_NAME.search(word))
    return shown


def hide_in_urls(text: str) -> str:
    """Return a text without the passwords and tokens of its URLs."""
    return TOKEN_IN_URL.sub(rf"\1\2{HIDDEN}", PASSWORD_IN_URL.sub(rf"\1:{HIDDEN}@", text))


def any_of(secrets: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for all of these values; the longest come first, because one may begin with
    another."""
    longest_first = sorted(secrets, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


class Redactor:
    """Replaces the secrets of a run in any text. `environment` is this command's: values of
    training.secrets are stored nowhere, but may still be in it."""

    def __init__(self, inventory: Inventory, environment: Mapping[str, str]) -> None:
        values = {value for name, value in _variables(inventory) if SECRET_NAME.search(name)}
        values |= {environment.get(name, "") for name in inventory.training.secrets}
        self._secrets = any_of(value for value in values if len(value) >= MIN_SECRET)

    def __call__(self, text: str) -> str:
        text = hide_in_urls(self._secrets.sub(HIDDEN, text))
        return LITERAL.sub(rf"\1\2{HIDDEN}\2", text)


def _variables(inventory: Inventory) -> Iterator[tuple[str, str]]:
    training = inventory.training
    jobs = [getattr(training, job) for job in JOBS]
    for table in (training, *jobs, *inventory.hosts):
        yield from table.env.items()
