"""Where packages come from: uv does not read pip's settings, so they are translated for it.

On a host these are the settings of its user, and of its administrator; on the controller, those of
the user who types tfdeploy.
"""

from __future__ import annotations

import os

from . import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Callable, Dict, List, Mapping

FILES = ("/etc/xdg/pip/pip.conf", "/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf")
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


def read_file(path: str) -> str:
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
    for path in (*FILES, *([own] if own else [])):
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
