"""Ask the machines what they are: GPUs, Pythons with the program's framework, size, and shared
directories."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from tfdeploy.environments import packages
from tfdeploy.errors import TfdeployError, TransferFailed
from tfdeploy.hosts.fleet import answers_of
from tfdeploy.init.machine import DEFAULT_PYTHON, Machine
from tfdeploy.planning.frameworks import TENSORFLOW
from tfdeploy.shared.protocol.preflight import Explore, ImportFacts, Statement, Survey
from tfdeploy.shared.records import GpuNeed
from tfdeploy.transfer.shared_directory import DirectoryClaims

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tfdeploy.config.inventory import Host
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.init.program import Program
    from tfdeploy.shared.protocol.preflight import MachineFacts, PythonFound, SurveyAnswer

EXPLORE_S = 180.0
SURVEY_S = 240.0  # an import of a framework, and a GPU driver may hang
MAX_IMPORTS = 3  # of different Pythons on one host
# Finds a module as an import does, and runs nothing of it: nobody has agreed yet to what a script
# of a clone imports. A namespace, such as google.cloud, has nothing of its own.
FIND = """
import sys
path, name = None, ""
for part in {module!r}.split("."):
    name = name + "." + part if name else part
    finders = (each for each in sys.meta_path if hasattr(each, "find_spec"))
    found = (finder.find_spec(name, path) for finder in finders)
    spec = next((each for each in found if each), None)
    if spec is None:
        raise ModuleNotFoundError("No module named {{!r}}".format(name), name=name)
    path = spec.submodule_search_locations
    if spec.origin or path is None:
        break
"""


def explore(
    fleet: Fleet, local_pythons: Sequence[str], program: Program, more: Sequence[str] = ()
) -> dict[str, Machine | TfdeployError]:
    """Return what each host of the fleet is, and what it lacks for the program; or why that is
    unknown. `local_pythons` are Pythons of this machine to look at first; `more` are modules that
    the program needs and does not import."""
    statements = [
        Statement(file, each.line, FIND.format(module=each.module))
        for package, (file, each) in packages.find(program.files).items()
        if package != program.framework
    ]
    statements += [Statement(program.script, 0, FIND.format(module=module)) for module in more]

    def ask(agent: Agent) -> MachineFacts:
        is_local = fleet.inventory.host(agent.host).is_local
        more = local_pythons if is_local else ()
        return agent.ask(Explore([*more], program.framework, is_local), EXPLORE_S)

    facts = fleet.outcomes(fleet.agents, ask)
    usual = count_pythons(known.pythons for known in answers_of(facts).values())

    def confirm(agent: Agent) -> tuple[Machine, SurveyAnswer]:
        known = facts[agent.host]
        if isinstance(known, TfdeployError):
            raise known
        ranked = rank_pythons(known.pythons, usual)[:MAX_IMPORTS]
        host = fleet.inventory.host(agent.host)
        return _confirm(agent, host, known, ranked, program.framework, statements)

    found = fleet.outcomes(fleet.agents, confirm)
    ids = {host: survey.here for host, (_, survey) in answers_of(found).items()}
    sharing = _find_sharing(fleet, ids)
    return {
        host: each
        if isinstance(each, TfdeployError)
        else replace(each[0], sharing=sharing, missing=_missing(each[1], program))
        for host, each in found.items()
    }


def count_pythons(of_hosts: Iterable[Sequence[PythonFound]]) -> Counter[tuple[str, str]]:
    """Return on how many hosts each Python has each version of the framework. Pure."""
    return Counter((p.path, p.framework) for pythons in of_hosts for p in pythons)


def rank_pythons(
    pythons: Sequence[PythonFound], usual: Mapping[tuple[str, str], int]
) -> list[PythonFound]:
    """Return the Pythons with the framework, the best first: the one that most hosts have, then
    the one on the PATH, then the newest framework. Pure."""
    usable = [python for python in pythons if python.framework and _is_path(python.path)]
    return sorted(
        usable,
        key=lambda p: (usual[p.path, p.framework], p.path == DEFAULT_PYTHON, _version(p)),
        reverse=True,
    )


def _is_path(path: str) -> bool:
    """Return whether a host named a path that hosts.toml may have."""
    return path.isprintable() and (path == DEFAULT_PYTHON or path.startswith(("/", "~/")))


def _version(python: PythonFound) -> list[int]:
    return [int(part) for part in python.framework.split(".") if part.isdecimal()]


def _confirm(
    agent: Agent,
    host: Host,
    facts: MachineFacts,
    ranked: Sequence[PythonFound],
    framework: str,
    statements: list[Statement],
) -> tuple[Machine, SurveyAnswer]:
    """Import the framework, and run `statements`, which look for what the program imports, with
    the `ranked` Pythons of a host, until one can; TensorFlow also has to see all GPUs. Return the
    one that sees the most, or of equal ones the first."""
    has_default = any(python.path == DEFAULT_PYTHON for python in facts.pythons)
    without = DEFAULT_PYTHON if has_default else host.python
    gpus = sorted(int(index) for index in facts.gpus if index.isdecimal())
    tried: list[tuple[str, SurveyAnswer]] = []
    for path in [python.path for python in ranked] or [without]:
        survey = Survey(path, {}, GpuNeed(gpus, 0), [framework], {}, statements=statements)
        tried.append((path, agent.ask(survey, SURVEY_S)))
        seen = _imported(tried[-1][1])
        if seen.version and (seen.gpus >= len(gpus) or framework != TENSORFLOW):
            break
    path, found = max(tried, key=lambda each: _quality(_imported(each[1])))
    imported = _imported(found)
    if imported.version:
        return _machine(host, facts, path, found, imported.version), found
    error = f"{path}: {imported.error}" if ranked else ""
    if imported.slow and ranked:  # a busy host: it has what is installed
        installed = next(python.framework for python in ranked if python.path == path)
        return _machine(host, facts, path, found, installed, error), found
    return _machine(host, facts, without, found, "", error), found


def _imported(survey: SurveyAnswer) -> ImportFacts:
    return next(iter(survey.imports.values()), ImportFacts(error="the host did not import it"))


def _quality(found: ImportFacts) -> tuple[bool, bool, int]:
    return bool(found.version), found.slow, found.gpus


def _machine(
    host: Host,
    facts: MachineFacts,
    python: str,
    survey: SurveyAnswer,
    framework: str,
    import_error: str = "",
) -> Machine:
    versions = {each.path: each.version for each in facts.pythons}
    return Machine(
        name=host.name,
        user=host.user or "",
        is_local=host.is_local,
        cpus=facts.cpus,
        memory_bytes=facts.memory_bytes,
        free_bytes=survey.free_bytes,
        gpus=tuple(facts.gpus[index] for index in sorted(facts.gpus)),
        python=python,
        python_version=versions.get(python, survey.version),
        framework=framework,
        import_error=import_error,
        architecture=facts.machine,
        libc=facts.libc,
        addresses=tuple(facts.addresses),
    )


def _missing(survey: SurveyAnswer, program: Program) -> tuple[str, ...]:
    """Return the packages of the program that a host lacks."""
    names = (
        packages.missing(program.files, each.file, each.line, each.missing)
        for each in survey.program
        if each.missing
    )
    return tuple(dict.fromkeys(names))


def _find_sharing(fleet: Fleet, ids: Mapping[str, str]) -> str:
    """Return which hosts have the same directory: "all", "some" or "none"."""
    count = 0
    with DirectoryClaims() as claims:
        for host, directory_id in ids.items():
            try:
                claims.claim(fleet.agents[host], directory_id)
            except TransferFailed:
                count += 1
            except TfdeployError:  # the host is gone; the next command reports it
                continue
    return "none" if not count else "all" if count == len(ids) - 1 else "some"
