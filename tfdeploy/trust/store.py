"""Remember what the user trusts: a file for each folder with a hosts.toml, in the user's
configuration.

~/.config/tfdeploy/trusted/<digest>    the folder, and a line for each value, to be read by people

A value is trusted for the folder of its hosts.toml, so also in the records of its runs. If the
value changes, or the content of the files that it names, the user is asked again. To end the trust,
delete the file.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from tfdeploy.errors import NotTrusted, RunError
from tfdeploy.folders.disk_errors import explain
from tfdeploy.folders.user_folders import config_folder, find_unsafe, make_private
from tfdeploy.trust import sensitive_values, words

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tfdeploy.config.inventory import Inventory
    from tfdeploy.trust.sensitive_values import SensitiveValue


class Trusted(NamedTuple):
    """A value that the user trusts, as it is stored."""

    key: str
    value: str
    content: str


def refuse_untrusted(inventory: Inventory, name: str, flags: str = "") -> None:
    """Raise NotTrusted if the inventory has values that the user has not trusted yet.

    `name` says what the inventory is, such as "hosts.toml"; `flags` are the options that name it on
    the command line.
    """
    values, known = sensitive_values.find(inventory), _read(inventory.file.parent)
    missing = _missing(values, known)
    if missing:
        now = {_stored(value) for value in values}
        before = {each.key: each.value for each in known if each not in now}
        lines = "".join(f"\n  {line}" for line in words.lines(missing, before))
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
    if link and _missing([link], _read(project)):
        line = words.lines([link], {})[0]
        found = f"runs/ needs your trust first, because\n  {line}"
        raise NotTrusted(found, "if that is your folder: tfdeploy trust")


def untrusted(inventory: Inventory) -> tuple[SensitiveValue, ...]:
    """Return the values of an inventory that the user has not trusted yet."""
    return _missing(sensitive_values.find(inventory), _read(inventory.file.parent))


def untrusted_to_plan(inventory: Inventory) -> tuple[SensitiveValue, ...]:
    """Return those of them that a plan reads, which runs nothing on a host."""
    return _missing(sensitive_values.on_controller(inventory), _read(inventory.file.parent))


def remember(inventory: Inventory) -> None:
    """Trust the values of an inventory from now on. Raises RunError if that can't be stored."""
    missing = untrusted(inventory)
    if not missing:
        return
    project = inventory.file.parent
    file = _file(project)
    header = "" if file.exists() else f"# {json.dumps(str(project))}"
    lines = [json.dumps(_stored(value), ensure_ascii=False) for value in missing]
    # One write, which begins with the end of a line: an interrupted one spoils no other.
    text = "\n".join([header, *lines, ""]).encode(errors="backslashreplace")
    try:
        make_private(file.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        with os.fdopen(os.open(file, flags, 0o600), "ab", buffering=0) as trusted:
            if os.fstat(trusted.fileno()).st_uid != os.geteuid():
                raise RunError(f"{file} belongs to another user", "delete it")
            trusted.write(text)
    except OSError as error:
        raise RunError(*explain(error, file)) from None


def _stored(value: SensitiveValue) -> Trusted:
    return Trusted(value.key, value.value, value.content)


def _missing(
    values: Iterable[SensitiveValue], known: Iterable[Trusted]
) -> tuple[SensitiveValue, ...]:
    trusted = set(known)
    return tuple(value for value in values if _stored(value) not in trusted)


def _file(project: Path) -> Path:
    name = os.fsencode(project.resolve())
    return config_folder() / "trusted" / hashlib.sha256(name).hexdigest()


def _read(project: Path) -> list[Trusted]:
    """Return what the user trusts in a folder, the oldest first. A file that another user could
    have written, or put there as a folder of a clone, counts as none."""
    file, found = _file(project), []
    with suppress(OSError):
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as content:
            owners = os.fstat(descriptor).st_uid, file.parent.lstat().st_uid
            if set(owners) != {os.geteuid()} or find_unsafe(file.parent)[0]:
                return []
            for line in content.read().decode(errors="replace").split("\n"):
                with suppress(ValueError, TypeError):
                    found.append(Trusted(*json.loads(line)))
    return found
