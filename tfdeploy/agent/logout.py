"""Would this machine kill our tasks when we log out? (systemd's KillUserProcesses)

Where logind is told to, it ends all that is left in a session's scope when that session ends,
setsid or not. Lingering alone saves nothing there: it keeps the user's own systemd running, and
what is moved into a scope of that one outlives the session. (Source: logind.conf(5), Example 5 of
systemd-run(1); found so with systemd 252.)
"""

from __future__ import annotations

import os
import pwd
import re

from . import TYPE_CHECKING
from .refusal import Refusal

if TYPE_CHECKING:
    from typing import Dict, Iterator, List, Optional, Sequence, Tuple

# Source: logind.conf(5). The first of the main files alone counts; drop-ins are read after it, in
# the order of their names, and of those with one name the first folder's hides the others. What no
# file sets is taken for off, as distributions build it; upstream builds it on.
FOLDERS = ("etc/systemd", "run/systemd", "usr/local/lib/systemd", "usr/lib/systemd", "lib/systemd")
CONF = "logind.conf"
LISTS = ("KillOnlyUsers", "KillExcludeUsers")
YES = ("1", "yes", "y", "true", "t", "on")
NO = ("0", "no", "n", "false", "f", "off")
SESSION = re.compile(r"/session-[^/\n]*\.scope(/|$)", re.M)
OWN_SCOPE = ("systemd-run", "--user", "--scope", "--quiet", "--")


def refusal(root: str = "/", user: Optional[str] = None) -> Optional[Refusal]:
    """Why what `user` (None: ours) starts here would die at logout, and the remedy; mostly None.

    Where it is None a command that begins with `outliving()` lives on. `root` is where the
    machine's files are looked up.
    """
    user = user or _own_name()
    setting = _killing(root, user)
    if setting is None or _lingers(root, user):
        return None
    return Refusal(
        "this host ends all processes of {} at logout (logind has {})".format(user, setting),
        "type there, as {}: loginctl enable-linger".format(user),
    )


def outliving(root: str = "/", user: Optional[str] = None) -> List[str]:
    """The words to put before a command so that what it runs outlives the login; mostly none.

    They run it in place: process id, session and open descriptors stay as they are. The user must
    linger, or what they run ends soon after the last logout.
    """
    return list(OWN_SCOPE) if _killing(root, user or _own_name()) else []


def killing(found: Dict[str, List[str]], user: str) -> Optional[str]:
    """The setting that kills the user's processes, if one does. Pure.

    The lists override KillUserProcesses, both ways; root is excluded where nobody is. (Source:
    manager_shall_kill() in src/login/logind-core.c; by logind.conf(5) an empty list would include
    root, which systemd 252 does not do.)
    """
    if user in (found.get("KillExcludeUsers") or ["root"]):
        return None
    if found.get("KillOnlyUsers"):
        return "KillOnlyUsers={}".format(user) if user in found["KillOnlyUsers"] else None
    return "KillUserProcesses=yes" if found.get("KillUserProcesses") == ["yes"] else None


def settings(root: str) -> Dict[str, List[str]]:
    """logind's settings on killing, by systemd's precedence; what is set nowhere is missing."""
    return collected([line for path in _files(root) for line in _assignments(_text(path))])


def collected(assignments: Sequence[Tuple[str, str]]) -> Dict[str, List[str]]:
    """A later switch replaces an earlier one, lists grow, and an empty one begins anew. Pure."""
    found: Dict[str, List[str]] = {}
    for key, value in assignments:
        words = [word.strip("\"'") for word in value.split()]
        if key in LISTS:
            found[key] = found.get(key, []) + words if words else []
        elif key == "KillUserProcesses" and value.lower() in YES + NO:
            found[key] = ["yes" if value.lower() in YES else "no"]
    return found


def _killing(root: str, user: str) -> Optional[str]:
    """The setting by which what we start would be killed at logout, or None."""
    if not os.path.isdir(os.path.join(root, "run/systemd/system")):  # sd_booted(3)
        return None
    if not SESSION.search(_text(os.path.join(root, "proc/self/cgroup"))):
        return None
    return killing(settings(root), user)


def _lingers(root: str, user: str) -> bool:
    """Names are escaped as in C. (Source: manager_enumerate_linger_users(), src/login/logind.c.)"""
    name = user.replace("\\", "\\\\")
    return os.path.exists(os.path.join(root, "var/lib/systemd/linger", name))


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _files(root: str) -> List[str]:
    """The main file, then the drop-ins, in the order in which they are read."""
    folders = [os.path.join(root, folder) for folder in FOLDERS]
    main = [path for path in (os.path.join(f, CONF) for f in folders) if os.path.exists(path)]
    dropped: Dict[str, str] = {}
    for folder in reversed(folders):
        dropped.update(_drop_ins(os.path.join(folder, CONF + ".d")))
    return main[:1] + [dropped[name] for name in sorted(dropped)]


def _drop_ins(folder: str) -> Dict[str, str]:
    try:
        names = os.listdir(folder)
    except OSError:
        return {}
    return {name: os.path.join(folder, name) for name in names if name.endswith(".conf")}


def _assignments(text: str) -> Iterator[Tuple[str, str]]:
    """`key = value` of the section [Login]. (Source: systemd.syntax(7).)"""
    section, begun = "", ""
    for line in text.splitlines():
        line = line.strip()
        if line[:1] in ("#", ";"):  # also between the lines of one that goes on
            continue
        if line.endswith("\\"):
            begun += line[:-1] + " "
            continue
        line, begun = begun + line, ""
        if line.startswith("["):
            section = line
        elif section == "[Login]" and "=" in line:
            key, _, value = line.partition("=")
            yield key.strip(), value.strip()


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
