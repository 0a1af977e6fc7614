"""The verb `survey`: what tasks will find on this host, looked at before any of them is started."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

from . import TYPE_CHECKING, leases, logout, paths, process, roots
from .start import at_home, is_program, no_program

if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List

    from .refusal import Refusal

    Told = Dict[str, Any]

IMPORT_S = 120.0
# Only an import tells: of a package that is there, a library for the GPU, say, may be missing.
IMPORT = """
import json
try:
    import tensorflow as tf
    told = {"version": tf.__version__, "gpus": len(tf.config.list_physical_devices("GPU"))}
except BaseException as error:
    told = {"error": "{}: {}".format(type(error).__name__, error)}
print("\\n" + json.dumps(told))
"""
NAMED = re.compile(r"^GPU (\d+): (.*?)(?: \(UUID: .*)?$", re.M)
VERSION = re.compile(rb"rsync +version v?([\w.]+)")
USED = ("--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader")


def survey(
    python: str, env: Dict[str, str], gpus: List[int], programs: Dict[str, List[str]]
) -> Told:
    """Answers `{version, tensorflow, rsync, gpus, here, free_bytes, hindrances, noted, time}`.

    `version` is that of our own Python, `tensorflow` is `{version, gpus}` as `python` sees it with
    `env` and these `gpus`, or `{error}`; `gpus` names those that nvidia-smi lists, by id;
    `hindrances` and `noted` are `[message, hint]`s: what would keep the tasks from starting, whose
    `[program, PATH]`s are `programs` ("": our own PATH), and what they may suffer from; `time` is
    our clock.
    """
    listed = leases.nvidia_smi("-L")
    uuids = leases.parsed_gpus(listed)
    asked = {gpu: uuids[gpu] for gpu in gpus if gpu in uuids}
    room = os.statvfs(paths.root())
    hindrances = [*_at_logout(), *_held(asked), *_missing(programs)]
    return {
        "version": ".".join(map(str, sys.version_info[:3])),
        "tensorflow": tensorflow(python, {**env, **_visible(gpus)}),
        "rsync": _rsync(),
        "gpus": dict(NAMED.findall(listed)),
        "here": roots.name(),
        "free_bytes": room.f_bavail * room.f_frsize,
        "hindrances": [[no.message, no.hint] for no in hindrances],
        "noted": [[found, ""] for found in _used(asked)],
        "time": time.time(),
    }


def _visible(gpus: List[int]) -> Dict[str, str]:
    """The tasks see theirs, not a display's."""
    shown = ",".join(map(str, gpus)) or "-1"
    return {"CUDA_VISIBLE_DEVICES": shown, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def tensorflow(python: str, env: Dict[str, str]) -> Told:
    """`{version, gpus}`, or `{error}` with why it can't be imported."""
    try:
        done = subprocess.run(
            [at_home(python), "-c", IMPORT],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **env, "TF_CPP_MIN_LOG_LEVEL": "3"},
            cwd="/",  # a folder's own files would be imported before all others
            timeout=IMPORT_S,
        )
    except subprocess.TimeoutExpired:
        return {"error": "it was not imported within {:g} s".format(IMPORT_S)}
    except OSError as error:
        return {"error": "{} can't be run: {}".format(python, error.strerror)}
    try:
        told: Told = json.loads(done.stdout.decode(errors="replace").splitlines()[-1])
    except (ValueError, IndexError):
        return {"error": "its import ended with {}".format(_named(done.returncode))}
    return told


def _named(code: int) -> str:
    """SIGILL: the processor is too old for how it was compiled."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return "exit {}".format(code)


def _rsync() -> str:
    try:
        done = subprocess.run(["rsync", "--version"], stdout=subprocess.PIPE, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = VERSION.search(done.stdout)
    return found[1].decode() if found else ""


def _at_logout() -> Iterator[Refusal]:
    refusal = logout.refusal()
    if refusal is not None:
        yield refusal


def _held(asked: Dict[int, str]) -> Iterator[Refusal]:
    for resource in asked.values():
        holder = leases.holder(resource)
        if holder is not None:
            yield leases.refused(resource, holder)


def _missing(programs: Dict[str, List[str]]) -> Iterator[Refusal]:
    """What lies in the release can't be looked for before a push."""
    for task, (word, path) in programs.items():
        program, env = at_home(word), {"PATH": path} if path else {}
        in_release = "/" in program and not os.path.isabs(program)
        if not in_release and not is_program(program, env, "/"):
            yield no_program(program, task)


def _used(asked: Dict[int, str]) -> Iterator[str]:
    """By whoever asks for no lease: not by a run."""
    ids = {resource.partition("/")[2]: number for number, resource in asked.items()}
    for line in leases.nvidia_smi(*USED).splitlines() if asked else ():
        uuid, pid, memory = ([cell.strip() for cell in line.split(",")] + ["", ""])[:3]
        if uuid in ids and pid.isdigit() and leases.holder("gpu/" + uuid) is None:
            yield "GPU {} is used by {}, {}".format(ids[uuid], process.described(int(pid)), memory)
