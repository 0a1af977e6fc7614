"""What uv and pip print, for people; and where packages come from: uv does not read pip's settings,
so they are translated for it. On a host these are the settings of its user, and of its
administrator; on the controller, those of the user who types tfdeploy."""

from __future__ import annotations

import os
import re
from typing import Callable, Dict, List, Mapping, Sequence

MAX_LINES = 60
MAX_LINE = 500  # characters
MAX_WORDS = 500
MAX_ERRORS = 5
FILES = (".whl", ".gz", ".zip", ".metadata")  # pip names a file, and downloads one after the other
ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
CREDENTIALS = re.compile(r"(://)[^/\s@]+@")
# How uv and pip mark their errors, and what follows one.
ERROR = re.compile(r"(?:error|ERROR|fatal): *|[×✗x] +(?=[A-Z])")
MARKS = re.compile(r"^(?:(?:error|ERROR|cause|Caused by): *|[×╰├─▶│ ]+)+")
DURATION = re.compile(r" in \d[\d.]*m?s\b")  # it would make equal errors of hosts different


class Failed(Exception):
    """A program exited with `code`; `lines` are the last ones that it printed."""

    def __init__(self, code: int, lines: List[str]) -> None:
        super().__init__("exit {}".format(code))
        self.code = code
        self.lines = lines

    @property
    def words(self) -> str:
        """The program's own words about its failure, in one line."""
        return error_words(self.lines) or "exit {}, and it printed nothing".format(self.code)


class InstallerProgress:
    """What an installer does now, as `text`, from the lines that it prints."""

    def __init__(self) -> None:
        self.text = ""
        self._downloads: Dict[str, str] = {}  # the package and its size, by package

    def take(self, line: str) -> None:
        """Take the next line; "" if there is none yet."""
        verb, _, rest = line.strip().partition(" ")
        name = rest.partition(" ")[0]
        if verb == "Downloading" and not name.endswith(FILES):
            self._downloads[name] = rest  # uv downloads many packages at once
        elif verb == "Downloaded":
            self._downloads.pop(name, None)
        elif verb == "Installed":  # uv then compiles, which takes longer
            self.text = "compiling"
            return
        if self._downloads:
            first, *others = self._downloads.values()
            more = " and {} more".format(len(others)) if others else ""
            self.text = "downloading {}{}".format(first, more)
        elif line:
            self.text = line.strip()


def error_words(lines: List[str]) -> str:
    """Return the error in the last lines of a program, in one line; the last line if none is marked
    as an error. Pure."""
    meaningful = [line for line in lines if line.strip() and not line.startswith("hint:")]
    starts = [at for at, line in enumerate(meaningful) if ERROR.match(line.strip())]
    chosen = meaningful[starts[0] :][:MAX_ERRORS] if starts else meaningful[-1:]
    parts = [MARKS.sub("", line).strip().rstrip(".:") for line in chosen]
    text = DURATION.sub("", ": ".join(part for part in parts if part))
    return text if len(text) <= MAX_WORDS else text[: MAX_WORDS - 1] + "…"


def clean(line: str) -> str:
    """Return a line without colors, and without the passwords of URLs. Pure."""
    return CREDENTIALS.sub(r"\1***@", ESCAPES.sub("", line).rstrip())[:MAX_LINE]


# Other builds of TensorFlow: the package "tensorflow" would overwrite their files.
OTHER_TENSORFLOW = {"tensorflow-cpu", "tensorflow-rocm", "tf-nightly", "tf-nightly-cpu"}
PACKAGE = re.compile(r"([\w.-]+)(?:\[[\w,. -]*\])? *(={2,3} *[\w.!+]+)?(?: *;.*)?")
NO_TENSORFLOW = "tensorflow; python_version < '0'"  # the condition is never true
PIP = "pip"  # what spec.py adds for setup commands


def overrides(lines: Sequence[str]) -> List[str]:
    """Return what uv is to use in place of what packages require: no package `tensorflow` beside
    another build, which tf_keras would bring. Only if all packages in these lines of requirements
    have exact versions, or none has any: otherwise `tensorflow` may have to choose the version of
    what requires it. Pure."""
    packages = [PACKAGE.fullmatch(line) for line in lines if line != PIP and line[:1] != "-"]
    found = {re.sub(r"[-_.]+", "-", each[1]).lower(): each[2] for each in packages if each}
    is_sure = all(packages) and len({bool(version) for version in found.values()}) == 1
    is_needed = found.keys() & OTHER_TENSORFLOW and "tensorflow" not in found
    return [NO_TENSORFLOW] if is_sure and is_needed else []


PIP_FILES = ("/etc/xdg/pip/pip.conf", "/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")
SECTIONS = ("global", "install")
# pip's settings, and the variables that mean the same to uv, with how they separate values.
TRANSLATED = {
    "index-url": ("UV_DEFAULT_INDEX", ""),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", ""),
}
OLDER_NAMES = {"UV_DEFAULT_INDEX": "UV_INDEX_URL", "UV_INDEX": "UV_EXTRA_INDEX_URL"}


def for_uv(environ: Mapping[str, str], read: Callable[[str], str]) -> Dict[str, str]:
    """Return variables for uv that say what pip's files and variables say. uv's own variables, if
    they are set, decide. `read` returns the text of a file, "" if there is none."""
    pip, found = _pip_settings(environ, read), {}
    for key, (variable, separator) in TRANSLATED.items():
        values = pip.get(key, [])
        is_set = variable in environ or OLDER_NAMES.get(variable, "") in environ
        if values and not is_set:
            found[variable] = separator.join(values) if separator else values[-1]
    return found


def uv_toml(environ: Mapping[str, str], read: Callable[[str], str]) -> str:
    """Return the text of a uv.toml: uv has no variable for pip's no-index. It also keeps uv from
    reading the settings of the folders above."""
    values = _pip_settings(environ, read).get("no-index", [environ.get("UV_NO_INDEX", "")])
    return (
        "no-index = true\n" if values and values[-1].lower() in ("1", "true", "yes", "on") else ""
    )


def read_settings(path: str) -> str:
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError):
        return ""


def _pip_settings(environ: Mapping[str, str], read: Callable[[str], str]) -> Dict[str, List[str]]:
    """Return pip's settings: a later file overrides an earlier one, and variables all files."""
    import configparser  # costs 3 ms, and few requests need it

    own = environ.get("PIP_CONFIG_FILE")
    found: Dict[str, List[str]] = {}
    for path in (*PIP_FILES, *([own] if own else [])):
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(read(path))
        except configparser.Error:
            continue
        for section in SECTIONS:
            for key, value in parser.items(section) if parser.has_section(section) else ():
                found[key.replace("_", "-")] = value.split()
    for key in (*TRANSLATED, "no-index"):
        variable = environ.get("PIP_" + key.upper().replace("-", "_"))
        if variable:
            found[key] = variable.split()
    return found
