"""Who could replace a folder: the rule of sshd's StrictModes, for tfdeploy's directory on a host,
and its folders in the user's home on the controller.

Each folder on the way to it, and each link, must belong to the user or to root. Nobody else may
write to a folder, because who may write there can rename what is in it; of groups only the user's
own private one, as in Debian's sshd. Two differences from sshd: what is above the home directory
counts, too, and a sticky folder such as /tmp is allowed, because there only the owner of a folder
may rename it, and that owner is checked.

The controller sends this module alone, before it stores the agent: it imports nothing of tfdeploy.
Source: safe_path() in OpenSSH's misc.c; S_ISVTX in inode(7).
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from typing import Iterator, Set, Tuple

MAX_PARTS = 4096
ALL_USERS = ["0", "0", "4294967295"]  # in uid_map, if it is not a user namespace
OVERFLOW = "/proc/sys/kernel/overflowuid"
OTHER_DIRECTORY = "set the host's directory in hosts.toml to a folder of your own"


def find_unsafe(path: str, other: str = OTHER_DIRECTORY) -> Tuple[str, str]:
    """Return what is wrong with the folder `path` or one above it, and how to correct it: two
    texts, which are empty if only this user and root can replace it. `other` says how to choose
    another folder. Raises OSError."""
    owners = {os.geteuid()} | _roots()
    for part in _parts(path):
        info = os.lstat(part)
        mode = stat.S_IMODE(info.st_mode)
        is_foreign = info.st_uid not in owners
        if is_foreign or (stat.S_ISDIR(info.st_mode) and _others_may_rename(mode, info.st_gid)):
            return _describe(part, info.st_uid, mode), _mend(part, info.st_uid, is_foreign, other)
    info = os.stat(path)
    if info.st_uid != os.geteuid():
        return _describe(path, info.st_uid, stat.S_IMODE(info.st_mode)), other
    return "", ""


def _others_may_rename(mode: int, group: int) -> bool:
    """Return whether another user may rename what is in a folder of this mode and group."""
    if mode & stat.S_ISVTX:
        return False
    return bool(mode & stat.S_IWOTH) or (bool(mode & stat.S_IWGRP) and not _is_private(group))


def _is_private(group: int) -> bool:
    """Return whether a group has this user alone, as most distributions make one for each user."""
    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    is_namesake = (user.pw_gid, user.pw_name) == (group, found.gr_name)
    return is_namesake and set(found.gr_mem) <= {user.pw_name}


def _parts(path: str) -> Iterator[str]:
    """Yield each folder and each link that decides where an absolute path leads, from / down."""
    yield "/"
    current, waiting = "/", path.split("/")[::-1]
    for _ in range(MAX_PARTS):
        if not waiting:
            return
        name = waiting.pop()
        if name == "..":
            current = os.path.dirname(current)
        elif name not in ("", "."):
            current = os.path.join(current, name)
            yield current
            if os.path.islink(current):
                target = os.readlink(current)
                waiting += target.split("/")[::-1]
                current = "/" if target.startswith("/") else os.path.dirname(current)
    raise OSError("{} has too many parts".format(path))


def _roots() -> Set[int]:
    """Return the ids by which root's files are known. In a user namespace, as in a container
    without root, those of the machine's root belong to nobody."""
    try:
        with open("/proc/self/uid_map") as users, open(OVERFLOW) as nobody:
            return {0} if users.read().split() == ALL_USERS else {0, int(nobody.read())}
    except (OSError, ValueError):
        return {0}


def _describe(path: str, owner: int, mode: int) -> str:
    return (
        "{} belongs to {} and has mode {:04o}, so that other users could replace what tfdeploy "
        "stores and runs".format(path, _user_name(owner), mode)
    )


def _mend(path: str, owner: int, is_foreign: bool, other: str) -> str:
    if is_foreign:
        return other
    mend = "chmod go-w {}".format(path)
    if owner != os.geteuid():
        mend = "ask {} for: {} (or chmod +t)".format(_user_name(owner), mend)
    return "{}; or {}".format(mend, other)


def _user_name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
