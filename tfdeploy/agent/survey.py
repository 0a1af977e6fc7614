"""The verb `survey`: what tasks will find on this host, looked at before any of them is started."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

from . import TYPE_CHECKING, leases, logout, paths, process

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


def survey(env: Dict[str, str], gpus: List[int]) -> Told:
    """Answers `{python, tensorflow, rsync, gpus, here, free_bytes, hindrances, noted, time}`.

    `tensorflow` is `{version, gpus}`, as it sees them with `env`, or `{error}`; `gpus` names those
    that nvidia-smi lists, by id; `hindrances` and `noted` are `[message, hint]`s: what would keep
    tasks with these `gpus` from starting, and what they may suffer from; `time` is our clock.
    """
    listed = leases.nvidia_smi("-L")
    uuids = leases.parsed_gpus(listed)
    asked = {gpu: uuids[gpu] for gpu in gpus if gpu in uuids}
    room = os.statvfs(paths.root())
    return {
        "python": ".".join(map(str, sys.version_info[:3])),
        "tensorflow": tensorflow(env),
        "rsync": _rsync(),
        "gpus": dict(NAMED.findall(listed)),
        "here": paths.identity(),
        "free_bytes": room.f_bavail * room.f_frsize,
        "hindrances": [[no.message, no.hint] for no in _hindrances(asked)],
        "noted": [[found, ""] for found in _used(asked)],
        "time": time.time(),
    }


def tensorflow(env: Dict[str, str]) -> Told:
    """`{version, gpus}`, or `{error}` with why it can't be imported."""
    own = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", IMPORT],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**own, **env, "TF_CPP_MIN_LOG_LEVEL": "3"},
            timeout=IMPORT_S,
        )
    except subprocess.TimeoutExpired:
        return {"error": "it was not imported within {:g} s".format(IMPORT_S)}
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


def _hindrances(asked: Dict[int, str]) -> Iterator[Refusal]:
    at_logout = logout.refusal()
    if at_logout is not None:
        yield at_logout
    for resource in asked.values():
        held = leases.holder(resource)
        if held is not None:
            yield leases.refused(resource, held)


def _used(asked: Dict[int, str]) -> Iterator[str]:
    """By whoever asks for no lease: not by a run."""
    ids = {resource.partition("/")[2]: number for number, resource in asked.items()}
    for line in leases.nvidia_smi(*USED).splitlines() if asked else ():
        uuid, pid, memory = ([cell.strip() for cell in line.split(",")] + ["", ""])[:3]
        if uuid in ids and pid.isdigit() and leases.holder("gpu/" + uuid) is None:
            yield "GPU {} is used by {}, {}".format(ids[uuid], process.described(int(pid)), memory)
