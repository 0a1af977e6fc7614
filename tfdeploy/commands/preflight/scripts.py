"""Refuse commands whose script no host can run: it is missing in the release, or Linux or a shell
can't read it as it is."""

from __future__ import annotations

import difflib
import os
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.config.cluster import JOBS
from tfdeploy.errors import PlanError
from tfdeploy.formatting.humanize import escape_line, quote_path
from tfdeploy.planning import command_files
from tfdeploy.planning.command_files import LINUX, MODULE, PYTHON, SHELL, CommandFile
from tfdeploy.shared.records import is_url

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from tfdeploy.config.inventory import Inventory
    from tfdeploy.release.snapshot import Release

MAX_LINKS = 40  # as Linux
HEAD_BYTES = 1 << 16  # of a script that are read
BOM = b"\xef\xbb\xbf"
WITHOUT_CR = r"sed -i 's/\r$//' {}"
WITHOUT_BOM = r"sed -i '1s/^\xEF\xBB\xBF//' {}"
SEVERAL_WORDS = re.compile(r"[^-].*\s\S")  # which env does not split without -S


def check_scripts(inventory: Inventory, release: Release) -> None:
    """Raise PlanError for the first command of hosts.toml with a script that can't be run."""
    for key, command in _commands(inventory):
        found = command_files.of_command(command)
        if found is not None and not _is_brought(inventory, found):
            _Script(key, found, release).check()


def _commands(inventory: Inventory) -> Iterator[tuple[str, Sequence[str]]]:
    training, notify = inventory.training, inventory.notify
    yield "training.command", training.command
    for job in JOBS:
        if command := getattr(training, job).command:
            yield f"training.{job}.command", command
    for key in notify.key_names():
        target = getattr(notify, key)
        if target and not is_url([*target]):
            yield f"notify.{key}", target


def _is_brought(inventory: Inventory, found: CommandFile) -> bool:
    """Return whether a data set or a file of the role may be there, or another task's folder."""
    path = found.path.replace(".", "/") if found.reader == MODULE else found.path
    places = (*inventory.data, *inventory.training.role_files, "..")
    return any(f"{posixpath.normpath(path)}/".startswith(f"{place}/") for place in places)


class _Script:
    """The script of the command `key`, in a release."""

    def __init__(self, key: str, found: CommandFile, release: Release) -> None:
        self.key, self.reader, self.release = key, found.reader, release
        self.path = posixpath.normpath(found.path)

    def check(self) -> None:
        """Raise PlanError if it can't be run."""
        entry = self._entry()
        if self.reader == MODULE:
            self._check_module()
        elif entry is None:
            self._check_file()
        elif self.reader == LINUX and not entry[2]:
            raise self._error("is not executable", f"chmod +x {quote_path(self._typed())}")
        elif self.reader in (LINUX, SHELL):
            self._check_text()

    def _entry(self) -> Sequence[object] | None:
        """Return what the manifest says of the file, or of the one that links lead to."""
        manifest, path = self.release.manifest, self.path
        for _ in range(MAX_LINKS):
            link = next((each for each in _above(path) if _is_link(manifest, each)), None)
            if link is None:
                return manifest.get(path)
            target = posixpath.join(posixpath.dirname(link), str(manifest[link][1]))
            path = posixpath.normpath(target + path[len(link) :])
        return None

    def _check_file(self) -> None:
        files = self.release.manifest
        close = _nearest(self.path, files)
        is_package = self.reader == PYTHON and f"{self.path}/__main__.py" in files
        may_be_on_path = self.reader == SHELL and "/" not in self.path and not close
        if not is_package and not may_be_on_path:
            raise self._missing(close)

    def _check_module(self) -> None:
        """Raise PlanError for a module that its package lacks. Another one may be installed."""
        package, _, name = self.path.partition(".")
        start = f"{package}/"
        files = [f.removeprefix(start) for f in self.release.manifest if f.startswith(start)]
        close = _nearest(name, [file.removesuffix(".py").replace("/", ".") for file in files])
        path = name.replace(".", "/")
        exists = any(file.startswith((f"{path}.", f"{path}/")) for file in files)
        if name and not exists and ("__init__.py" in files or close):
            raise self._missing(close and f"{package}.{close}")

    def _missing(self, close: str) -> PlanError:
        root = self.release.root
        hint = "check source.path, source.exclude and what git ignores"
        if os.path.lexists(root / self.path):
            hint = "source.exclude or a rule of git leaves it out: correct that"
        message = f"is not among the files that would be pushed from {root}"
        return self._error(message, f"did you mean {close}?" if close else hint)

    def _check_text(self) -> None:
        with (self.release.root / self.path).open("rb") as file:
            head = file.read(HEAD_BYTES)
        has_cr = head.count(b"\n") == head.count(b"\r\n") > 0
        if has_cr or (self.reader == LINUX and head.partition(b"\n")[0].endswith(b"\r")):
            message = "has line ends of Windows (CRLF), with which Linux can't run it"
            raise self._error(message, WITHOUT_CR.format(quote_path(self._typed())))
        if self.reader == LINUX:
            self._check_interpreter(head)

    def _check_interpreter(self, head: bytes) -> None:
        """Raise PlanError if Linux finds no interpreter. Source: execve(2), interpreter scripts."""
        if head.startswith(BOM):
            message = "starts with a byte order mark, so Linux ignores its first line"
            raise self._error(message, WITHOUT_BOM.format(quote_path(self._typed())))
        line = escape_line(head.partition(b"\n")[0].decode(errors="replace"))
        program, *words = line.removeprefix("#!").split(maxsplit=1) or [""]
        if not line.startswith("#!") or not program:
            if b"\0" not in head:  # else it is a program, or an archive
                hint = f'"bash {self.path}" as the command, or a first line such as #!/bin/bash'
                raise self._error("has a first line that names no interpreter", hint)
        elif not program.startswith("/"):
            hint = f"write #!/usr/bin/env {program}"
            raise self._error("names an interpreter without an absolute path", hint)
        elif posixpath.basename(program) == "env" and SEVERAL_WORDS.match("".join(words)):
            hint = f"write #!{program} -S {words[0]}"
            raise self._error("has a first line that gives env several words as one", hint)

    def _typed(self) -> str:
        """Return the path as a user types it in the current folder."""
        file, folder = self.release.root / self.path, Path.cwd()
        return str(file.relative_to(folder) if file.is_relative_to(folder) else file)

    def _error(self, problem: str, hint: str) -> PlanError:
        return PlanError(f"{self.key}: {self.path} {problem}", hint)


def _above(path: str) -> Iterator[str]:
    """Yield the folders around a path, the outermost first, and the path."""
    parts = path.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts) + 1))


def _is_link(manifest: Mapping[str, Sequence[object]], path: str) -> bool:
    return path in manifest and manifest[path][0] == "link"


def _nearest(name: str, names: Collection[str]) -> str:
    return next(iter(difflib.get_close_matches(name, names, n=1)), "")
