"""Find what an ssh_config could run or write on this machine.

Only keywords that are known to be harmless need no trust: ssh_config(5) has many that run
programs (ProxyCommand, LocalCommand, KnownHostsCommand, Match exec, PKCS11Provider), and new
versions add more.
"""

from __future__ import annotations

import glob
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES = 1_000_000
MAX_FILES = 100
HARMLESS = {
    *("host", "match", "hostname", "user", "port", "proxyjump", "bindaddress", "addressfamily"),
    *("identityfile", "identitiesonly", "certificatefile", "forwardagent"),
    *("preferredauthentications", "pubkeyauthentication", "passwordauthentication", "batchmode"),
    *("kbdinteractiveauthentication", "numberofpasswordprompts", "gssapiauthentication"),
    *("hostkeyalias", "hostkeyalgorithms", "pubkeyacceptedalgorithms", "casignaturealgorithms"),
    *("stricthostkeychecking", "globalknownhostsfile", "hashknownhosts"),
    *("checkhostip", "verifyhostkeydns", "updatehostkeys", "visualhostkey", "ciphers", "macs"),
    *("kexalgorithms", "rekeylimit", "connecttimeout", "connectionattempts"),
    *("serveraliveinterval", "serveralivecountmax", "tcpkeepalive", "compression", "ipqos"),
    *("loglevel", "logverbose", "requesttty", "escapechar"),
}  # fmt: skip
# ssh adds new keys to a known_hosts file: with another name, the file could be a program.
KNOWN_HOSTS_NAME = re.compile(r"known_hosts\w*(\.\w+)*|none|null")
# A keyword with quotes is none of these: ssh joins the parts of User"KnownHostsFile".
LINE = re.compile(r"([A-Za-z0-9]+)(?:[\s=]+(.*))?")
QUOTES = str.maketrans("", "", "\"'\\")
INCLUDE = "include"


@dataclass(frozen=True)
class Found:
    """The keywords of an ssh_config that need trust, each with its line, such as "ProxyCommand in
    line 3"; and the digest of the file and of the files that it includes."""

    keywords: tuple[str, ...]
    digest: str


def read(file: Path) -> Found:
    """Read an ssh_config. A file that ssh can't read either has no keywords."""
    digest = hashlib.sha256()
    keywords: list[str] = []
    for path, text in _with_included(file):
        digest.update(f"{path}\0{len(text)}\0{text}".encode(errors="surrogateescape"))
        if path == file:
            keywords += _sensitive(text)
    return Found(tuple(keywords), digest.hexdigest())


def _with_included(file: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file and its text. Files in ~/.ssh are the user's own, whoever includes them."""
    own = Path.home() / ".ssh"
    waiting, seen = [file], set[Path]()
    while waiting and len(seen) < MAX_FILES:
        path = waiting.pop(0)
        if path in seen or (path != file and path.is_relative_to(own)):
            continue
        seen.add(path)
        text = _text(path)
        yield path, text
        for keyword, value in (found for _, *found in _lines(text)):
            if keyword.lower() == INCLUDE:
                words = (Path(word.strip('"')).expanduser() for word in value.split())
                waiting += (Path(name) for word in words for name in sorted(_glob(own / word)))


def _glob(pattern: Path) -> list[str]:
    return glob.glob(str(pattern))  # noqa: PTH207 - Path's takes no absolute ones


def _text(file: Path) -> str:
    try:
        if not file.is_file():
            return ""
        with file.open(errors="surrogateescape", newline="\n") as content:
            return content.read(MAX_BYTES)
    except OSError:
        return ""


def _lines(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line number, keyword, the rest) as ssh separates them."""
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            words = LINE.fullmatch(stripped)
            yield (number, words[1], words[2] or "") if words else (number, stripped[:40], "")


def _sensitive(text: str) -> Iterator[str]:
    if len(text) >= MAX_BYTES:
        yield "more than 1 MB"
    for number, keyword, value in _lines(text):
        name, words = keyword.lower(), value.translate(QUOTES).split()
        if name == "match" and "exec" in value.translate(QUOTES).lower():
            yield f"{keyword} exec in line {number}"
        elif name == "userknownhostsfile" and words and all(map(_is_known_hosts, words)):
            continue
        elif name not in HARMLESS:
            yield f"{keyword} in line {number}"


def _is_known_hosts(path: str) -> bool:
    return bool(KNOWN_HOSTS_NAME.fullmatch(PurePath(path).name))
