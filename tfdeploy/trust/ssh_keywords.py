"""Find what an ssh_config could run or write on the controller, and digest it.

Only keywords that are known to be harmless need no trust before a plan: ssh_config(5) has many that
run programs (ProxyCommand, LocalCommand, KnownHostsCommand, Match exec, PKCS11Provider), and new
versions add more. Before a host is contacted all need it: HostName and Port can lead a host's name
to another machine, with a host key that came along.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from tfdeploy.trust import named_files

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_CHARACTERS = 1_000_000
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
# Keywords whose other values accept host keys that nobody has compared: OpenSSH itself obeys them.
STRICT = {"stricthostkeychecking": ("yes", "true", "ask"), "verifyhostkeydns": ("no", "false")}
# ssh adds new keys to a known_hosts file: with another name, the file could be a program.
KNOWN_HOSTS_NAME = re.compile(r"known_hosts[\w-]*(\.\d+)?|none|null")
UNRESOLVED = re.compile(r"%(?!d/)|\$")  # tokens and variables, except the home directory
# A keyword with quotes is none of these: ssh joins the parts of User"KnownHostsFile".
LINE = re.compile(r"([A-Za-z0-9]+)(?:[\s=]+(.*))?")
QUOTES = str.maketrans("", "", "\"'\\")
# ssh gives some values to a shell, such as those of ProxyJump: no other characters may be in any.
PLAIN = re.compile(r"[\w.@:\[\],%+/~*?!=^ \t\"-]*")
PLAIN_ALIAS = re.compile(r"[\w.:\[\]-]+")
# Keywords whose value a shell gets, or is a file whose content decides what is run or believed.
NAMES_FILES = re.compile("command|provider|device|location|knownhostsfile")
EXEC = re.compile("exec", re.IGNORECASE)
OPTION = re.compile(r"(^|[\s,@/\"])-")
SHELL_CHARACTERS = re.compile(r"[^\w.@:,%+/~= -]")
MODULE = "pkcs11:"  # Fedora's ssh loads the library that such a key names (RFC 7512, module-path)
INCLUDE = "include"
# Quotes, variables, ranges, and wildcards in the name of a folder, which could mean a whole disk.
UNCLEAR = re.compile(r"[\"'\\$%\[]|[*?].*/")
MAX_PATH = 4096
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class Found:
    """What of an ssh_config could run or write, such as "ProxyCommand in line 3"; and the digest of
    the file, of the files that it includes, and of those of the repository that it names."""

    keywords: tuple[str, ...]
    digest: str


class _Unclear(Exception):
    """An Include that names other files than this module can find."""


def read(file: Path, root: Path) -> Found | None:
    """Read an ssh_config that came with the repository `root`; None if it needs no trust, as the
    user's own in ~/.ssh."""
    if _is_own(file):
        return None
    digest = hashlib.sha256()
    found = []
    if SHELL_CHARACTERS.search(_normalized(file)):
        found.append("characters of a shell in its path")
    found += _sensitive(_text(file))
    try:
        for path, text in _with_included(file):
            unclear = [*_unclear(text)]
            found += unclear
            named = os.urandom(32).hex() if unclear else named_files.digest(text, root)
            digest.update(f"{path}\0{len(text)}\0{text}{named}".encode(errors="surrogateescape"))
    except (_Unclear, ValueError, RuntimeError):  # the last: a home of an unknown user
        found.append("an Include whose files can't be found, so that it can't be trusted")
        digest.update(os.urandom(32))
    return Found(tuple(found), digest.hexdigest())


def _is_own(path: Path) -> bool:
    """Return whether a file is one of the user's own in ~/.ssh. A link there stays one, if nobody
    else can write what it leads to; a path with ".." may lead through a link to anywhere."""
    absolute = Path.cwd() / path
    if ".." in absolute.parts or not absolute.is_relative_to(Path.home() / ".ssh"):
        return False
    try:
        info = absolute.stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return info.st_uid in (0, os.geteuid()) and not info.st_mode & OTHERS_WRITE


def _normalized(path: Path) -> str:
    """Return the absolute path without ".."."""
    return os.path.abspath(path)  # noqa: PTH100 - Path.resolve follows links


def _with_included(file: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file and its text, but not the user's own. Raises _Unclear."""
    waiting, seen = [file], set[Path]()
    while waiting:
        path = waiting.pop(0)
        if path in seen or _is_own(path):
            continue
        seen.add(path)
        text = _text(path)
        if len(seen) > MAX_FILES or len(text) >= MAX_CHARACTERS:
            raise _Unclear
        yield path, text
        waiting += _included(text)


def _included(text: str) -> Iterator[Path]:
    """Yield the files that an ssh_config includes. Raises _Unclear."""
    for _, keyword, value in _lines(text):
        if INCLUDE in keyword.lower() and keyword.lower() != INCLUDE:
            raise _Unclear  # a keyword with quotes
        if keyword.lower() == INCLUDE:
            for word in value.split():
                if len(word) > MAX_PATH or UNCLEAR.search(word):
                    raise _Unclear
                pattern = Path.home() / ".ssh" / Path(word).expanduser()
                yield from map(Path, sorted(glob.glob(str(pattern))))  # noqa: PTH207


def _text(file: Path) -> str:
    try:
        if not file.is_file():
            return ""
        with file.open(errors="surrogateescape", newline="\n") as content:
            return content.read(MAX_CHARACTERS)
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
    for number, keyword, value in _lines(text):
        name, unquoted = keyword.lower(), value.translate(QUOTES)
        words = unquoted.split()
        if name == "match" and "exec" in unquoted.lower():
            yield f"{keyword} exec in line {number}"
        elif name == "userknownhostsfile" and words and all(map(_is_known_hosts, words)):
            continue
        elif name not in HARMLESS or not _is_plain(name, value):
            yield f"{keyword} in line {number}"


def _unclear(text: str) -> Iterator[str]:
    """Yield the lines that name files which can't be found, so that their content could change
    unasked."""
    for number, keyword, value in _lines(text):
        name = keyword.lower()
        if name == "match":
            names_files = bool(EXEC.search(value.translate(QUOTES)))
            value = EXEC.split(value, 1)[-1]
        elif name == "proxyjump":
            names_files = not _is_plain(name, value)
        else:
            names_files = bool(NAMES_FILES.search(name))
        has_quotes = keyword != keyword.translate(QUOTES)
        if has_quotes or (names_files and named_files.is_unclear(value)):
            yield f"files in line {number} whose names can't be known, so that it can't be trusted"


def _is_plain(name: str, value: str) -> bool:
    """Return whether a value is only what it seems to be, also in a shell or a known_hosts file."""
    if name == "hostkeyalias":
        return bool(PLAIN_ALIAS.fullmatch(value))
    if name in STRICT:
        return value.translate(QUOTES).strip().lower() in STRICT[name]
    if name == "proxyjump" and OPTION.search(value):
        return False
    if name in ("identityfile", "certificatefile") and MODULE in value.translate(QUOTES).lower():
        return False
    return bool(PLAIN.fullmatch(value))


def _is_known_hosts(path: str) -> bool:
    """Return whether a path, and the file that it leads to, have a name of known_hosts files."""
    if not KNOWN_HOSTS_NAME.fullmatch(PurePath(path).name) or UNRESOLVED.search(path):
        return False
    try:
        file = Path(path.replace("%d", str(Path.home()))).expanduser()
        is_own = file.is_relative_to(Path.home() / ".ssh") and ".." not in file.parts
        return is_own or bool(KNOWN_HOSTS_NAME.fullmatch(file.resolve().name))
    except (OSError, ValueError, RuntimeError):
        return False
