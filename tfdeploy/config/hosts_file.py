"""Find the hosts file of a command, and name it on a command line. It takes no time to import."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.errors import InventoryError

if TYPE_CHECKING:
    from typing import BinaryIO

NAME = "hosts.toml"
VARIABLE = "TFDEPLOY_HOSTS"
FOLDER_HINT = "pass the file in it: --hosts FOLDER/hosts.toml"
MISSING_HINT = "pass --hosts FILE, or change to its folder; tfdeploy init writes a new one"


def find_hosts_file() -> Path:
    """Return the hosts.toml of the current folder, or else that of the nearest folder above it, as
    git and uv find theirs; `hosts.toml` if there is none.

    Above the current folder, files of other users are skipped: a file in /tmp must not decide what
    a command in a folder below it starts.
    """
    cwd, own = Path.cwd(), Path(NAME)
    above = (folder / NAME for folder in cwd.parents)
    return own if os.path.lexists(own) else next((file for file in above if _is_own(file)), own)


def default_hosts_file() -> Path:
    """Return the hosts file of a command without --hosts."""
    return Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else find_hosts_file()


def open_hosts_file(file: Path) -> BinaryIO:
    """Open a hosts file to read it. Raises InventoryError."""
    try:
        return file.open("rb")
    except FileNotFoundError:
        message, hint = f"{_shown(file)}: there is no such file", MISSING_HINT
    except IsADirectoryError:
        message, hint = f"{_shown(file)} is a folder; expected a file", FOLDER_HINT
    except OSError as error:
        message, hint = f"{_shown(file)}: can't be read: {error.strerror}", ""
    raise InventoryError(message, hint)


def hosts_flag(file: Path) -> str:
    """Return the option that names a hosts file on the command line; "" for the default."""
    cwd = Path.cwd()
    absolute = cwd / file
    shown = absolute.relative_to(cwd) if absolute.is_relative_to(cwd) else absolute
    return "" if absolute == cwd / default_hosts_file() else f"--hosts {shlex.quote(str(shown))}"


def _shown(file: Path) -> str:
    """Return the file, and that the variable names it if it does, for messages."""
    variable = os.environ.get(VARIABLE)
    is_named = variable and file == Path(variable)
    return f"{file} (named by {VARIABLE})" if is_named else str(file)


def _is_own(file: Path) -> bool:
    with suppress(OSError):
        return file.is_file() and file.stat().st_uid == os.geteuid()
    return False
