"""The verbs `environment`, `build` and `see_environment`: a Python environment is built completely
or not at all, and used by all hosts that see the same folder."""

from __future__ import annotations

import glob
import os
import subprocess
from typing import Dict, Iterator, List, Tuple

from ...shared import filesystem, uv_and_pip
from ...shared.protocol.environments import (
    BuildReport,
    BuildStep,
    Built,
    EnvironmentSeen,
    EnvironmentState,
    NotInstalled,
)
from .. import paths
from ..machine import shared_directory
from ..refusal import Refusal
from . import installers, marker
from .installers import BuildOrder

PRUNE = "tfdeploy prune deletes old runs, releases and environments"
INSTALL_UV = "install uv on the host"
PRINT_VERSION = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
PYTHON_TIMEOUT_S = 60.0


def find(project: str, environment: str, uv: str = "") -> EnvironmentState:
    """Report whether this host has an environment, and what could build it."""
    found = marker.read(paths.environment(project, environment))
    packages, version = found or ({}, "")
    return EnvironmentState(
        built=found is not None,
        python=version,
        packages=packages,
        uv="" if found else installers.find_uv(project, uv)[1],
        machine=os.uname().machine,
        libc=libc(),
        here=shared_directory.store_id(),
    )


def build(
    project: str,
    environment: str,
    requirements: List[str],
    constraints: List[str],
    locked: Dict[str, str],
    python: str,
    setup: List[str],
    env: Dict[str, str],
    uv: str = "",
    wheels: str = "",
) -> Iterator[BuildReport]:
    """Build an environment, unless it is complete; report each step, and at least every second.

    If another agent builds it, wait for that. What is not complete is removed, also if this
    generator is closed. Raises Refusal.
    """
    paths.make_private(project)
    os.makedirs(paths.environments(project), exist_ok=True)
    folder = paths.environment(project, environment)
    descriptor = marker.open_lock(paths.environment_lock(project, environment))
    try:
        for _ in marker.wait_for_lock(descriptor):
            yield BuildStep("waiting for another push, which builds it")
        is_built = marker.read(folder) is not None
        if not is_built:
            content = (requirements, constraints, locked, python, setup)
            uv_path, environ = installers.find_uv(project, uv)[0], {**os.environ, **env}
            files = _wheels(project, wheels)
            order = BuildOrder(folder, *content, environ, uv_path, files, descriptor)
            yield from _build(order)
        found = marker.read(folder)
        if found is not None:
            yield Built(packages=found[0], python=found[1], fresh=not is_built)
    finally:
        os.close(descriptor)


def see(project: str, environment: str, digest: str) -> EnvironmentSeen:
    """Report how this host sees an environment, and whether its Python runs here; see
    SeeEnvironment."""
    folder = paths.environment(project, environment)
    found = shared_directory.wait_for_file(marker.file(folder), digest)
    python, why = _run_python(folder) if found else ("", "")
    return EnvironmentSeen(found, python, why, os.uname().machine, libc())


def libc() -> str:
    """Return the name and version of the C library; "" if it is not glibc."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):  # another libc
        return ""


def _build(order: BuildOrder) -> Iterator[BuildReport]:
    """Build; what is not complete at the end is removed."""
    _refuse_to_replace(order.folder)
    try:
        filesystem.remove_folder(order.folder)
        filesystem.remove_folder(order.work)
        _write_files(order)
        yield from _create(order)
        try:
            yield from _install(order)
        except uv_and_pip.Failed as failed:
            _refuse_full_disk(failed.lines)
            python = marker.version(order.folder)
            yield NotInstalled(failed.words, python, os.uname().machine, libc())
            return
        yield from _set_up(order)
        marker.write(order.folder, order.wheels_release)
    except OSError as error:
        raise Refusal(
            "its environment can't be built: {}".format(error.strerror),
            PRUNE if filesystem.is_disk_full(error) else "",
        ) from None
    finally:
        filesystem.remove_folder(order.work)
        if marker.read(order.folder) is None:
            filesystem.remove_folder(order.folder)


def _refuse_to_replace(folder: str) -> None:
    """Raise Refusal if hosts share the store and the environment is complete for another one."""
    if paths.is_shared() and os.path.exists(marker.file(folder)):
        raise Refusal(
            "{} is complete, but its Python is not on this host, or has changed".format(folder),
            "if other hosts use it, install that Python, set env.python, or give the host a "
            "directory of its own; else delete the folder",
        )


def _create(order: BuildOrder) -> Iterator[BuildReport]:
    if not order.uv:
        raise Refusal("it has no uv that runs, which builds its environment", INSTALL_UV)
    yield BuildStep("creating it")
    try:
        yield from _run(order, installers.create_command(order), "creating it")
    except uv_and_pip.Failed as failed:
        _refuse_full_disk(failed.lines)
        hint = "set env.python to a version that the host has, or that uv downloads"
        raise Refusal("can't create its environment: {}".format(failed.words), hint) from None


def _install(order: BuildOrder) -> Iterator[BuildReport]:
    """Raises uv_and_pip.Failed."""
    if order.requirements or order.locked:
        yield from _run(order, installers.install_command(order), "installing")


def _set_up(order: BuildOrder) -> Iterator[BuildReport]:
    for command in order.setup:
        try:
            yield from _run(order, ["sh", "-c", command], "setup")
        except uv_and_pip.Failed as failed:
            _refuse_full_disk(failed.lines)
            last = failed.lines[-1] if failed.lines else "it printed nothing"
            raise Refusal(
                "env.setup: `{}` exited with {}: {}".format(command, failed.code, last),
                "correct the command, and push again",
            ) from None


def _run(order: BuildOrder, argv: List[str], doing: str) -> Iterator[BuildReport]:
    """Run a program of the build; report what it prints. Raises uv_and_pip.Failed."""
    progress = uv_and_pip.InstallerProgress()
    with marker.cache_in_use():
        for line in installers.run_program(order, argv):
            progress.take(line)
            yield BuildStep(": ".join(filter(None, (doing, progress.text))))


def _refuse_full_disk(lines: List[str]) -> None:
    """Raise Refusal if the disk is full. The cache, which holds what did arrive, is emptied unless
    another build uses it."""
    if any(full in line for line in lines for full in filesystem.NO_SPACE):
        with marker.lock_taken(paths.cache_lock()) as is_unused:
            if is_unused:
                filesystem.remove_folder(paths.cache())
        raise Refusal("its disk is full: its environment can't be built", PRUNE)


def _write_files(order: BuildOrder) -> None:
    """Write what installers read into an empty folder."""
    os.mkdir(order.work, 0o700)
    os.makedirs(paths.cache(), exist_ok=True)
    settings = uv_and_pip.uv_toml(order.environ, uv_and_pip.read_settings)
    files = {**order.texts, **({} if order.locked else {"uv.toml": settings})}
    for name, text in files.items():
        with open(os.path.join(order.work, os.path.basename(name)), "w", encoding="utf-8") as file:
            file.write(text)


def _wheels(project: str, release: str) -> List[str]:
    if not release:
        return []
    found = sorted(glob.glob(os.path.join(glob.escape(paths.release(project, release)), "*.whl")))
    if not found:
        raise Refusal("release {} is not on this host".format(release), "run tfdeploy push")
    return found


def _run_python(folder: str) -> Tuple[str, str]:
    """Return the version that the environment's Python prints, or "" and why it does not run."""
    try:
        done = subprocess.run(
            [marker.python(folder), "-c", PRINT_VERSION],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=PYTHON_TIMEOUT_S,
        )
    except OSError as error:
        return "", str(error.strerror)
    except subprocess.TimeoutExpired:
        return "", "it does not end"
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    if done.returncode != 0:
        return "", lines[-1] if lines else "exit {}".format(done.returncode)
    return done.stdout.decode(errors="replace").strip(), ""
