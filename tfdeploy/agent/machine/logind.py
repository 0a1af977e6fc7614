"""Find out whether logind kills this user's processes at logout (systemd's KillUserProcesses).

If it does, it kills everything that is left in a session's scope when the session ends, even after
setsid. Lingering alone does not help: it keeps the user's own systemd running, and only processes
in a scope of that systemd outlive the session. Source: logind.conf(5), Example 5 of systemd-run(1);
confirmed with systemd 252.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from typing import List, Optional, Sequence

from ..refusal import Refusal

PROPERTIES = ("KillUserProcesses", "KillOnlyUsers", "KillExcludeUsers")
LOGIND = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")
BUSCTL = ("busctl", "--system", "get-property", *LOGIND, *PROPERTIES)
BUSCTL_TIMEOUT_S = 5.0
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
SESSION = re.compile(r"/session-[^/\n]*\.scope(/|$)", re.M)
USER_SCOPE = ("systemd-run", "--user", "--scope", "--quiet", "--")


def logout_refusal(root: str = "/", user: Optional[str] = None) -> Optional[Refusal]:
    """Return why processes that `user` starts in this session would be killed at logout, or None.

    `user` is this process's user by default. If the result is None, a command that starts with
    `scope_command()` outlives the login. `root` is the folder below which the machine's files are.
    """
    user = user or _own_name()
    setting = _kill_setting(root, user)
    if setting is None or _lingers(root, user):
        return None
    return Refusal(
        "this host kills all processes of {} at logout (logind has {})".format(user, setting),
        "run on the host, as {}: loginctl enable-linger".format(user),
    )


def scope_command(root: str = "/", user: Optional[str] = None) -> List[str]:
    """Return the words to put before a command so that it outlives the login; usually none.

    The command keeps its process id, session and open descriptors. The user must linger, or the
    command is killed soon after the last logout.
    """
    return list(USER_SCOPE) if _kill_setting(root, user or _own_name()) else []


def kill_setting(
    user: str, kills: bool, only: Sequence[str], excluded: Sequence[str]
) -> Optional[str]:
    """Return the setting by which logind kills the processes of `user`, or None. Pure.

    The lists override KillUserProcesses in both directions. root is excluded if no user is.
    Source: manager_shall_kill() in src/login/logind-core.c. (By logind.conf(5) an empty list would
    include root; systemd 252 does not do that.)
    """
    if user in (excluded or ["root"]):
        return None
    if only:
        return "KillOnlyUsers={}".format(user) if user in only else None
    return "KillUserProcesses=yes" if kills else None


def _kill_setting(root: str, user: str) -> Optional[str]:
    """Return the setting by which processes started in this session are killed, or None."""
    if not os.path.isdir(os.path.join(root, "run/systemd/system")):  # sd_booted(3)
        return None
    if not SESSION.search(_read_text(os.path.join(root, "proc/self/cgroup"))):
        return None
    answer = _ask_logind()
    if len(answer) != len(PROPERTIES):
        return None  # unknown; distributions build logind with KillUserProcesses=no
    switch, only, excluded = answer
    return kill_setting(user, switch == "b true", _quoted(only), _quoted(excluded))


def _ask_logind() -> List[str]:
    """Return the values of PROPERTIES as busctl(1) prints them; [] if logind does not answer.

    A value is `b true`, or for example `as 2 "ada" "bob"`.
    """
    try:
        done = subprocess.run(
            BUSCTL,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=BUSCTL_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.decode(errors="replace").splitlines()


def _quoted(value: str) -> List[str]:
    return [re.sub(r"\\(.)", r"\1", text) for text in QUOTED.findall(value)]


def _lingers(root: str, user: str) -> bool:
    """Return whether `user` lingers. The file's name is the user's name, escaped as in C.

    Source: manager_enumerate_linger_users() in src/login/logind.c.
    """
    name = user.replace("\\", "\\\\")
    return os.path.exists(os.path.join(root, "var/lib/systemd/linger", name))


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def login_shell() -> str:
    """Return the shell that a login of the user gets; /bin/sh for a user without an entry."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_shell or "/bin/sh"
    except KeyError:
        return "/bin/sh"
