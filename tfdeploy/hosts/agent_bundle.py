"""The agent as one zip, what runs on the hosts and inside the training; and how a host gets it."""

from __future__ import annotations

import base64
import hashlib
import io
import posixpath
import re
import zipfile
import zlib
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from tfdeploy.errors import AgentError, CommandFailed
from tfdeploy.formatting.humanize import quote_word
from tfdeploy.hosts.agent_session import ANSWER_TIMEOUT_S
from tfdeploy.hosts.login_shell import find_problem
from tfdeploy.shared.protocol.message import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

    from tfdeploy.errors import HostError
    from tfdeploy.transport import CompletedCommand, Transport

# A zip stores times: a fixed one keeps the hash the same in every checkout.
EPOCH = (1980, 1, 1, 0, 0, 0)
# Those that inside/preload/build.sh builds for.
PROCESSORS = ("aarch64", "x86_64")
NOT_WRITTEN = 95
FOREIGN = 94
UNSAFE = 93
UNREADABLE = 92
# $1 is the agent's path, absolute or relative to the home directory; $2 the Python; $3 UNPACK. The
# shell finds the home directory, and stores the agent that it reads from its standard input. -S -E:
# neither the environment nor site-packages affect the agent. Supervisors change their directory, so
# SERVE makes the agent's path absolute. The owner of the agent's folder, or of the one around it,
# could replace what is run: both must belong to the user (test -O).
RESOLVE_HOME = 'cd "$HOME" && case $2 in "~/"*) set -- "$1" "$PWD/${2#??}" "$3" ;; esac'
SERVE = (
    f'{RESOLVE_HOME} && case $1 in /*) ;; *) set -- "$PWD/$1" "$2" ;; esac '
    f'&& test -d "$1" || {{ set -- "${{1%/agent/*}}"; test -d "$1" && ! test -x "$1" '
    f"&& exit {UNREADABLE}; exit {ABSENT}; }}; "
    f'test -O "$1" && test -O "${{1%/*}}" || exit {FOREIGN}; '
    'exec "$2" -S -E "$1" serve'
)
SEND_AGENT = (
    f'{RESOLVE_HOME} && umask 077 && mkdir -p "${{1%/*}}" || exit {NOT_WRITTEN}; '
    f'test -O "${{1%/*}}" || exit {FOREIGN}; archive=$(mktemp "$1.XXXXXX") && cat > "$archive" '
    f'|| exit {NOT_WRITTEN}; exec "$2" -S -E -c "$3" "$archive" "$1"'
)
# What dash, bash and BusyBox print before the reason for which they can't run a program.
SHELL_WORDS = re.compile(r"^tfdeploy: (?:exec: )?(?:line )?\d+: (?:exec: )?")
# Any Python 3 can run this, after shared/own_folders.py. The folder appears whole, also if the
# power fails then, as nothing looks into it again; a faster controller has stored the same. The
# archive is cut off if the controller is killed.
UNPACK = f"""
import os, shutil, sys, zipfile
archive, folder = sys.argv[1:]
unsafe = find_unsafe(os.path.dirname(os.path.dirname(os.path.join(os.environ["HOME"], folder))))
if unsafe[0]:
    os.remove(archive)
    print(*unsafe, sep="\\n", file=sys.stderr)
    sys.exit({UNSAFE})
try:
    with zipfile.ZipFile(archive) as file:
        file.extractall(archive + ".d")
    for top, _, names in os.walk(archive + ".d"):
        for name in names:
            with open(os.path.join(top, name), "rb") as file:
                os.fsync(file.fileno())
    try:
        os.rename(archive + ".d", folder)
    except OSError:
        os.listdir(folder)
finally:
    os.remove(archive)
    shutil.rmtree(archive + ".d", ignore_errors=True)
"""


@cache
def bundle() -> bytes:
    """Return the zip: the same bytes for the same sources."""
    package = resources.files("tfdeploy")
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "__main__.py", package.joinpath("agent/__main__.py").read_bytes())
        _add(archive, "tfdeploy/__init__.py", b"")
        for folder in ("agent", "shared"):
            for name, source in _modules(package, folder):
                _add(archive, f"tfdeploy/{folder}/{name}", source)
        for name, source in _modules(package, "inside"):
            _add(archive, f"inside/{name}", source)
        for processor in PROCESSORS:
            library = f"preload/{processor}.so"
            _add(archive, library, package.joinpath(f"inside/{library}").read_bytes())
    return data.getvalue()


@cache
def folder_check() -> str:
    """Return the source of the module that finds who could replace a folder."""
    return resources.files("tfdeploy").joinpath("shared/own_folders.py").read_text()


@cache
def current_version() -> str:
    """Return the name of the agent that this tfdeploy sends."""
    return hashlib.sha256(bundle()).hexdigest()[:16]


def path_below_home(root: str, version: str) -> str:
    """Return an agent's path, absolute or relative to the home directory: the shell does not expand
    `~` in quotes."""
    directory = root.removeprefix("~/").rstrip("/")
    return f"{directory}/agent/{version}"


def serving(path: str, python: str) -> list[str]:
    """Return the command that runs the agent; it exits with ABSENT if there is none."""
    return ["sh", "-c", SERVE, "tfdeploy", path, python]


def send(transport: Transport, path: str, python: str) -> None:
    """Store this version's agent on a host. Raises HostError."""
    # Base64: within quotes, a csh as login shell accepts no line break, and fish replaces two
    # backslashes by one.
    code = base64.b64encode(zlib.compress(f"{folder_check()}\n{UNPACK}".encode(), 9)).decode()
    unpack = f"import base64, zlib; exec(zlib.decompress(base64.b64decode('{code}')))"
    argv = ["sh", "-c", SEND_AGENT, "tfdeploy", path, python, unpack]
    command = transport.run(argv, stdin=bundle(), timeout_s=ANSWER_TIMEOUT_S)
    if command.exit == NOT_WRITTEN:
        raise CommandFailed(
            transport.host,
            f"can't write {path}: {_last_line(command.stderr)}",
            "set the host's directory in hosts.toml to one that its user may write",
        )
    if command.exit != 0:
        raise no_answer(transport, path, python, command)


def no_answer(transport: Transport, path: str, python: str, command: CompletedCommand) -> HostError:
    """Return why a host's agent has exited without an answer."""
    host = transport.host
    if command.exit == FOREIGN:
        return CommandFailed(
            host,
            f"{posixpath.dirname(path)} belongs to another user, who could replace the agent",
            "set the host's directory in hosts.toml to a folder of your own",
        )
    if command.exit == UNREADABLE:
        root = posixpath.dirname(posixpath.dirname(path))
        on_host = quote_word(root) if root.startswith("/") else f"~/{quote_word(root)}"
        hint = f"on this host: chmod u+rwx {on_host}"
        return CommandFailed(host, f"can't read {on_host}: permission denied", hint)
    if command.exit == UNSAFE:
        *_, unsafe, mend = ["", "", *command.stderr.decode(errors="replace").splitlines()]
        return CommandFailed(host, unsafe, mend)
    if problem := find_problem(transport, host):
        return problem
    last = _last_line(command.stderr)
    if command.exit in (126, 127):
        words = SHELL_WORDS.sub("", last)  # without the shell's own
        why = words.removeprefix(f"{python}: ").removeprefix("cannot execute: ")
        return CommandFailed(
            host,
            f"can't run {python}: {why}",
            "set the host's python in hosts.toml to the path of a Python, 3.8 or newer",
        )
    return AgentError(
        host,
        f"the agent gave no answer (exit {command.exit}): {last}",
        f"check that {python}, the host's python in hosts.toml, is Python 3.8 or newer",
    )


def _last_line(output: bytes) -> str:
    lines = [line for line in output.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"


def _modules(package: Traversable, folder: str) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(package.joinpath(folder).iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".py"):
            yield entry.name, entry.read_bytes()
        elif entry.is_dir() and entry.name != "__pycache__":
            for name, source in _modules(package, f"{folder}/{entry.name}"):
                yield f"{entry.name}/{name}", source


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, EPOCH), data, zipfile.ZIP_DEFLATED)
