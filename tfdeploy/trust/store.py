"""Remember what the user trusts: a file for each folder and value, in the user's configuration.

~/.config/tfdeploy/trusted/<digest>    the folder and the value, to be read by people

A value is trusted for the folder of its hosts.toml, so also in the records of its runs. If the
value changes, or the content of the ssh_config that it names, the user is asked again. To end the
trust, delete the file.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from tfdeploy.errors import NotTrusted, RunError
from tfdeploy.folders.disk_errors import explain
from tfdeploy.folders.user_folders import config_folder, make_private
from tfdeploy.trust import sensitive_values

if TYPE_CHECKING:
    from pathlib import Path

    from tfdeploy.config.inventory import Inventory
    from tfdeploy.trust.sensitive_values import SensitiveValue


def refuse_untrusted(inventory: Inventory, name: str, flags: str = "") -> None:
    """Raise NotTrusted if the inventory has sensitive values that the user has not trusted yet.

    `name` says what the inventory is, such as "hosts.toml"; `flags` are the options that name it on
    the command line.
    """
    missing = untrusted(inventory)
    if missing:
        lines = "".join(f"\n  {value}" for value in missing)
        command = f"tfdeploy trust {flags}".rstrip()
        raise NotTrusted(
            f"{name} needs your trust first, because{lines}",
            f"read what it names; if you trust it: {command}",
        )


def refuse_untrusted_link(project: Path) -> None:
    """Raise NotTrusted if the project's folder runs/ is a link that the user has not trusted yet.

    Commands that only read a record ask for no trust before they write a report.
    """
    link = sensitive_values.runs_link(project)
    if link and not _is_own(_file(project, link)):
        found = f"runs/ needs your trust first, because\n  {link}"
        raise NotTrusted(found, "if that is your folder: tfdeploy trust")


def untrusted(inventory: Inventory) -> tuple[SensitiveValue, ...]:
    """Return the sensitive values of an inventory that the user has not trusted yet."""
    values = sensitive_values.find(inventory)
    return tuple(value for value in values if not _is_own(_file(inventory.file.parent, value)))


def remember(inventory: Inventory) -> None:
    """Trust the sensitive values of an inventory from now on. Raises RunError if that can't be
    stored."""
    for value in untrusted(inventory):
        file = _file(inventory.file.parent, value)
        try:
            make_private(file.parent)
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as new:
                new.write(f"{inventory.file.parent}\n{value}\n".encode(errors="backslashreplace"))
        except FileExistsError:
            if not _is_own(file):  # else another command has just trusted it
                raise RunError(f"{file} belongs to another user", "delete it") from None
        except OSError as error:
            with suppress(OSError):
                file.unlink()  # it may be incomplete
            raise RunError(*explain(error, file)) from None


def _file(project: Path, value: SensitiveValue) -> Path:
    key = json.dumps([str(project.resolve()), value.key, value.value, value.content])
    return config_folder() / "trusted" / hashlib.sha256(key.encode()).hexdigest()


def _is_own(file: Path) -> bool:
    """Return whether this user wrote the file: nobody else decides what the user trusts."""
    try:
        return all(path.lstat().st_uid == os.geteuid() for path in (file, file.parent))
    except OSError:
        return False
