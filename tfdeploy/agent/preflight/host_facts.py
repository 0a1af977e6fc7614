"""The verb `survey`: report what tasks will find on this host, before any of them starts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from typing import Dict, Iterator, List

from ...shared import parallel
from ...shared.protocol.message import parse
from ...shared.protocol.preflight import ImportFacts, Statement, SurveyAnswer
from ...shared.records import GpuNeed
from .. import children, paths
from ..environments import marker
from ..machine import gpus, logind, shared_directory
from ..machine.devices import gpu_health, nvidia, vendors
from ..refusal import Refusal
from ..runs.start_checks import expand_home, guard_refusal, is_program, missing_program
from .program import IMPORT_S, exit_name, try_program

NOTIFY = "notify."  # the programs of [notify] are the host's own
RSYNC_S = 30.0
# Only an import shows whether a framework works: a library for the GPU may be missing, for example.
IMPORT = """
import importlib, json, sys
name, inside = sys.argv[1:]
try:
    module = importlib.import_module(name)
    sys.path.append(inside)
    import tfdeploy_versions
    result = tfdeploy_versions.of_module(sys.modules[name.partition(".")[0]])
    if name == "tensorflow":
        result["gpus"] = len(module.config.list_physical_devices("GPU"))
    if name == "torch":
        # device_count() alone may ask the driver, not CUDA.
        result["gpus"] = module.cuda.device_count() if module.cuda.is_available() else 0
except BaseException as error:
    result = {"error": "{}: {}".format(type(error).__name__, error)}
print("\\n" + json.dumps(result))
"""
RSYNC_VERSION = re.compile(r"rsync +version v?([\w.]+)")
DRIVER = ("--query-gpu=driver_version", "--format=csv,noheader")


def survey(
    python: str,
    env: Dict[str, str],
    need: GpuNeed,
    imports: List[str],
    programs: Dict[str, List[str]],
    network: str,
    project: str,
    environment: str,
    sources: Dict[str, str],
    statements: List[Statement],
) -> SurveyAnswer:
    """Report what tasks that run `python` with `env`, the GPUs that they `need` and the modules
    `imports` find on this host.

    If the `environment` that has this `python` is not built, nothing is looked for in it, and the
    agent's own Python compiles the program. `network` is that of records.Launch. `programs` has
    each task's `[program, PATH]`; an empty PATH means the agent's own. `sources` and `statements`
    are those of try_program.
    """
    started = time.time()
    listed, failure = vendors.listed_if_possible()
    host_gpus = {gpu.index: gpu.resource for gpu in listed}
    disk = os.statvfs(paths.root())
    unbuilt = bool(environment) and not marker.is_complete(project, environment)
    imports = [] if unbuilt else imports
    visible = vendors.variables(need.gpus, host_gpus)
    env = {**env, **visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    # An environment is built with the agent's Python, unless hosts.toml names another version.
    own = (sys.executable, env, sources, []) if unbuilt else (python, env, sources, statements)
    tried = parallel.begin(lambda: try_program(*own))
    rsync = RSYNC_VERSION.search(children.output(["rsync", "--version"], RSYNC_S))
    found = parallel.each(lambda module: import_module(module, python, env), imports)
    hindrances = [
        *_unsafe_directory(),
        logind.logout_refusal(),
        *_taken_gpus(need, host_gpus),
        *_missing_programs(_findable(programs, python, environment, unbuilt)),
        guard_refusal(network),
    ]
    return SurveyAnswer(
        version=".".join(map(str, sys.version_info[:3])),
        imports=dict(zip(imports, found)),  # noqa: B905 - Python 3.8 has no strict
        rsync=rsync[1] if rsync else "",
        gpus={str(gpu.index): gpu.name for gpu in listed},
        here=shared_directory.store_id(),
        free_bytes=disk.f_bavail * disk.f_frsize,
        hindrances=[(each.message, each.hint) for each in hindrances if each],
        times=(started, time.time()),
        driver=nvidia.run_nvidia_smi(*DRIVER).partition("\n")[0].strip() if listed else "",
        unbuilt=unbuilt,
        program=tried(),
        gpu_problems=[*gpu_health.problems().values()] if listed else [],
        gpu_failure=(failure.message, failure.hint) if failure else None,
    )


def _findable(
    programs: Dict[str, List[str]], python: str, environment: str, unbuilt: bool
) -> Dict[str, List[str]]:
    """Return the programs that can be looked for: those of tasks with an environment that is not
    built can't, and one that is built has some of its own."""
    if not environment:
        return programs
    own = {name: each for name, each in programs.items() if name.startswith(NOTIFY)}
    if unbuilt:
        return own
    folder, usual = os.path.dirname(expand_home(python)), os.environ.get("PATH", "")
    found = {name: [each[0], folder + ":" + (each[1] or usual)] for name, each in programs.items()}
    return {**found, **own}


def _unsafe_directory() -> Iterator[Refusal]:
    try:
        paths.refuse_unsafe(paths.root())
    except Refusal as refusal:
        yield refusal


def import_module(module: str, python: str, env: Dict[str, str]) -> ImportFacts:
    """Import a module in a process of its own; return what it finds, or why the import fails."""
    try:
        done = subprocess.run(
            [expand_home(python), "-c", IMPORT, module, os.path.join(paths.agent(), "inside")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **env, "TF_CPP_MIN_LOG_LEVEL": "3"},
            cwd="/",  # Python imports the files of its current folder before all others
            timeout=IMPORT_S,
        )
    except subprocess.TimeoutExpired:
        error = "the import took longer than {:g} s".format(IMPORT_S)
        return ImportFacts(error=error, slow=True)
    except OSError as failure:
        return ImportFacts(error="cannot run {}: {}".format(python, failure.strerror))
    try:
        last_line = done.stdout.decode(errors="replace").splitlines()[-1]
        return parse(ImportFacts, json.loads(last_line))
    except (ValueError, IndexError):
        end = exit_name(done.returncode)
        return ImportFacts(error="the import ended with {}".format(end))


def _taken_gpus(need: GpuNeed, host_gpus: Dict[int, str]) -> Iterator[Refusal]:
    try:
        yield from gpus.refusals(need, host_gpus)
    except Refusal as hanging:
        yield hanging


def _missing_programs(programs: Dict[str, List[str]]) -> Iterator[Refusal]:
    """Yield a refusal for each missing program, except those in the release.

    The release is not on the host before a push.
    """
    for task, (word, path) in programs.items():
        program, env = expand_home(word), {"PATH": path} if path else {}
        in_release = "/" in program and not os.path.isabs(program)
        if not in_release and not is_program(program, env, "/"):
            yield missing_program(program, task, "/")
