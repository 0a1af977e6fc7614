"""Download wheels for a host that can't reach an index, and find or download a uv to send.

Nothing of what is downloaded runs on the controller: only wheels are accepted, never source
packages, whose build runs their code. What the requirements say about the controller's own files or
variables is refused.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tfdeploy.environments import installation
from tfdeploy.environments.spec import EnvironmentSpec
from tfdeploy.release import snapshot
from tfdeploy.shared import uv_and_pip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tfdeploy.release.snapshot import Release

PLACE = "env.wheels"
MACHINES = ("x86_64", "aarch64")
# The versions of glibc that uv knows as platforms; wheels for an older one run on a newer one.
GLIBC_2 = (17, 28, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40)
OLDEST_GLIBC_2 = 5
OLD_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
MUSL = ("musllinux_1_2", "musllinux_1_1")
# The only variables that the installers see: a requirements file can ask for any other one.
VARIABLES = re.compile(
    r"PATH|HOME|USER|LANG|LC_\w+|TMPDIR|XDG_\w+|SSL_CERT_\w+|REQUESTS_CA_BUNDLE|UV_\w+|PIP_\w+"
    r"|(?i:(https?|all|no)_proxy)"
)
OF_THE_HOST = re.compile(r"\$\{|(^|[\s=@])((?i:file):|\.{0,2}/|~)")
PINNED = re.compile(r"^([a-z0-9-]+)(?:\[.*\])?==([^\s;\\]+)", re.MULTILINE)
# Requirements whose source code would be built to learn its name or version. pip builds what a URL
# names even if it may use only wheels.
WHEEL_URL = re.compile(r"[\w.\[\],-]+\s*@\s*https?://[^\s;#?]+\.whl(#[^\s;]*)?(\s*[;\s].*)?")
OPTION = re.compile(
    r"(-i|-f|--index-url|--extra-index-url|--find-links|--trusted-host)[ =].+"
    r"|--pre|--prefer-binary|--no-index|--require-hashes"
)


class NoWheels(Exception):
    """The wheels can't be downloaded; the text says why."""


@dataclass(frozen=True)
class WheelTarget:
    """The Python ("3.11") and the platform of hosts: words such as x86_64 and "glibc 2.36"."""

    python: str
    machine: str
    libc: str


def packaged_uv() -> Path | None:
    """Return the path of the uv of tfdeploy's extra `env`; None if there is none."""
    with suppress(ImportError, FileNotFoundError):
        import uv  # rarely needed

        return Path(uv.find_uv_bin())
    return None


def uv_release(machine: str, libc: str, folder: Path) -> Release:
    """Return a release with a uv that runs on hosts of this platform: the one of the extra, or else
    one that is downloaded into `folder`; not one of PATH, which may be a script, or built for this
    machine alone. Raises NoWheels."""
    found = packaged_uv()
    same = (platform.system(), platform.machine()) == ("Linux", machine)
    if found is None or not same or not libc:
        found = _download_uv(WheelTarget(f"3.{sys.version_info.minor}", machine, libc), folder)
    excluded = ["/*", f"!/{found.name}"]
    return snapshot.take_data_set("env.uv", found.parent.resolve(), excluded, "hash")


def _download_uv(target: WheelTarget, folder: Path) -> Path:
    _refuse_unknown(target)
    _write_files(EnvironmentSpec("", ("uv",), (), {}, "", ()), folder)
    wheels = ["--only-binary", ":all:", "--target", "packages", "-r", "requirements.txt"]
    _run([*_uv(), "pip", "install", "-q", *_platform_options(target), *wheels], folder)
    return folder / "packages" / "bin" / "uv"


def download(
    spec: EnvironmentSpec,
    target: WheelTarget,
    folder: Path,
    on_step: Callable[[str], None] = lambda step: None,
) -> Release:
    """Download into `folder` all wheels of an environment for hosts of this platform; return them
    as a release. `on_step` is called with what is downloaded now. Raises NoWheels."""
    _refuse_unknown(target)
    work, wheels = folder / "work", folder / "wheels"
    for each in (work, wheels):
        each.mkdir()
    _write_files(spec, work)
    _pin(target, work)
    _download(target, work, wheels, on_step)
    return snapshot.take_data_set(PLACE, wheels, (), "hash")


def versions(requirements: Sequence[str], target: WheelTarget) -> dict[str, str]:
    """Return the versions that fit together of all packages which these requirements mean on hosts
    of this platform, by their normalized names. Raises NoWheels."""
    _refuse_unknown(target)
    with tempfile.TemporaryDirectory(prefix="tfdeploy-versions-") as folder:
        work = Path(folder)
        _write_files(EnvironmentSpec("", tuple(requirements), (), {}, "", ()), work)
        _pin(target, work)
        return dict(PINNED.findall((work / "pinned.txt").read_text()))


def is_wheels(release: str) -> bool:
    """Return whether a release has wheels, by its id."""
    return release.rpartition("-")[0] == snapshot.slug(PLACE)


def _refuse_unknown(target: WheelTarget) -> None:
    if target.machine not in MACHINES or not re.fullmatch(r"3\.\d+", target.python):
        raise NoWheels(f"it knows no wheels for {target.machine} and Python {target.python}")


def _write_files(spec: EnvironmentSpec, work: Path) -> None:
    """Write the requirements into `work`; those of a uv.lock as uv exports them."""
    _refuse_foreign(spec.lines)
    _refuse_foreign(spec.constraints)
    for name, text in spec.locked.items():
        (work / name).write_text(text)
    if spec.locked:
        export = ["export", "--frozen", "--no-emit-project", "--no-dev", "--no-config", "--offline"]
        export += ["--no-header", "--no-annotate"]
        _run([*_uv(), *export, "--python", sys.executable, "-q", "-o", "requirements.txt"], work)
        for name in spec.locked:
            (work / name).unlink()
        _refuse_foreign((work / "requirements.txt").read_text().splitlines())
    else:
        (work / "requirements.txt").write_text("\n".join(spec.lines) + "\n")
    (work / "constraints.txt").write_text("\n".join(spec.constraints) + "\n")
    overrides = uv_and_pip.overrides([*spec.lines, *spec.constraints])
    (work / "overrides.txt").write_text("\n".join(overrides) + "\n")
    settings = uv_and_pip.uv_toml(os.environ, uv_and_pip.read_settings)
    (work / "uv.toml").write_text(settings)


def _refuse_foreign(lines: Iterable[str]) -> None:
    """Raise NoWheels for what means a file or a variable of the host, or source code to build."""
    for line in lines:
        shown = uv_and_pip.clean(line.partition(" --hash")[0])
        if OF_THE_HOST.search(line):
            raise NoWheels(f"{shown} means a file or a variable of the host")
        if line.startswith("-") and not OPTION.fullmatch(line):
            raise NoWheels(f"{shown} is an option for source code, and it uses only wheels")
        if "://" in line and not line.startswith("-") and not WHEEL_URL.fullmatch(line):
            raise NoWheels(f"{shown} is source code, and it uses only wheels")


def _pin(target: WheelTarget, work: Path) -> None:
    """Choose the version of every package for the host's platform, with the hashes of its files."""
    indexes = ["--emit-index-url", "--emit-find-links"]
    wheels = ["--only-binary", ":all:", "--generate-hashes", "--no-header", "--no-annotate"]
    chosen = ["-c", "constraints.txt", "--override", "overrides.txt"]
    files = ["requirements.txt", *chosen, "-o", "pinned.txt"]
    platforms = _platform_options(target)
    _run([*_uv(), "pip", "compile", "-q", *wheels, *platforms, *indexes, *files], work)


def _download(
    target: WheelTarget, work: Path, wheels: Path, on_step: Callable[[str], None]
) -> None:
    if importlib.util.find_spec("pip") is None:
        raise _not_installed("pip")
    pip = [sys.executable, "-m", "pip", "download", "--no-input", "--progress-bar", "off"]
    platforms = [word for name in _pip_platforms(target) for word in ("--platform", name)]
    python = ["--python-version", target.python, "--implementation", "cp"]
    only = ["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check"]
    _run([*pip, *only, *python, *platforms, "-d", str(wheels), "-r", "pinned.txt"], work, on_step)


def _uv() -> list[str]:
    found = packaged_uv() or shutil.which("uv")
    if found is None:
        raise _not_installed("uv")
    return [str(found)]


def _not_installed(package: str) -> NoWheels:
    command = installation.command_to_add("env")
    return NoWheels(f"it has no {package}, which this installs: {command}")


def _run(
    argv: Sequence[str], work: Path, on_step: Callable[[str], None] = lambda step: None
) -> None:
    """Run an installer in `work`, where it reads no settings but the user's. Raises NoWheels."""
    own = {name: value for name, value in os.environ.items() if VARIABLES.fullmatch(name)}
    settings = uv_and_pip.for_uv(os.environ, uv_and_pip.read_settings)
    progress, lines = (
        uv_and_pip.InstallerProgress(),
        deque[str](maxlen=uv_and_pip.MAX_LINES),
    )
    with subprocess.Popen(
        argv,
        cwd=work,
        env={**own, **settings, "NO_COLOR": "1", "PYTHONSAFEPATH": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            for line in process.stdout or ():
                lines.append(uv_and_pip.clean(line))
                progress.take(lines[-1])
                on_step(progress.text)
        except BaseException:  # Ctrl-C: a download may take minutes
            process.kill()
            raise
    if process.returncode != 0:
        raise NoWheels(uv_and_pip.Failed(process.returncode, list(lines)).words)


def _platform_options(target: WheelTarget) -> list[str]:
    """Return the options of uv that choose wheels for a host."""
    platforms = ["--python-platform", _uv_platform(target), "--python-version", target.python]
    return [*platforms, "--python", sys.executable, "--no-python-downloads"]


def _uv_platform(target: WheelTarget) -> str:
    if not target.libc:
        return f"{target.machine}-unknown-linux-musl"
    older = [version for version in GLIBC_2 if version <= _glibc_2(target)]
    if not older:
        raise NoWheels(f"it knows no wheels for {target.libc}")
    return f"{target.machine}-manylinux_2_{older[-1]}"


def _pip_platforms(target: WheelTarget) -> list[str]:
    """Return the platforms of wheels that run on the host, the newest first."""
    if not target.libc:
        return [f"{name}_{target.machine}" for name in MUSL]
    names = []
    for version in range(_glibc_2(target), OLDEST_GLIBC_2 - 1, -1):
        names.append(f"manylinux_2_{version}")
        names += [OLD_NAMES[version]] if version in OLD_NAMES else []
    return [f"{name}_{target.machine}" for name in (*names, "linux")]


def _glibc_2(target: WheelTarget) -> int:
    match = re.fullmatch(r"glibc 2\.(\d{1,3})(\.\d+)?", target.libc)
    return int(match[1]) if match else 0
