"""Ask a host what it has: Python, the tasks' framework, GPUs, rsync, disk space, clock."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from tfdeploy.errors import AgentError
from tfdeploy.init import keras
from tfdeploy.planning import frameworks
from tfdeploy.planning.frameworks import TENSORFLOW
from tfdeploy.release import modules
from tfdeploy.release.syntax import TF_KERAS
from tfdeploy.shared.protocol.preflight import Statement, Survey, SurveyAnswer
from tfdeploy.shared.records import GpuNeed, gpu_need, is_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tfdeploy.commands.intent import Intent
    from tfdeploy.config.inventory import Host
    from tfdeploy.hosts.agent_client import Agent
    from tfdeploy.release.modules import Module
    from tfdeploy.shared.protocol.preflight import ImportFacts, ProgramError
    from tfdeploy.shared.records import Launch

SURVEY_TIMEOUT_S = 240.0  # the host imports a framework, and a GPU driver may hang


@dataclass(frozen=True)
class HostFacts:
    """What one host has.

    `imports` are none if the environment of its tasks is `unbuilt`; `program` is what keeps their
    program from starting, and `python` the program that runs them. `gpus` are names by index.
    `directory_id` identifies the host's directory. `problems`, (message, hint), would make a start
    fail; `gpu_problems` may. `gpu_failure` says why nobody can list its GPUs.
    """

    KEYS = (
        *("python_version", "versions", "tensorflow", "libraries", "environment", "gpu_names"),
        *("gpus_seen", "rsync", "free_bytes", "ahead_s"),
    )
    NAMES: ClassVar = {"python_version": "python", "versions": "imports", "gpu_names": "gpus"}

    host: str
    python_version: str
    """The version of its Python."""
    imports: Mapping[str, ImportFacts]
    gpus: Mapping[int, str]
    rsync: str | None
    """The version of its rsync."""
    directory_id: str
    free_bytes: int
    """The free space on the disk of its directory."""
    ahead_s: float
    """The seconds by which its clock is ahead of the controller's."""
    problems: tuple[tuple[str, str], ...]
    libraries: Mapping[str, str] = field(default_factory=dict)
    """The versions of other libraries, such as cuDNN."""
    unbuilt: bool = False
    python: str = ""
    environment: str | None = None
    """The id of its environment of [env]; null for its own Python."""
    program: tuple[ProgramError, ...] = ()
    gpu_problems: tuple[str, ...] = ()
    gpu_failure: tuple[str, str] | None = None

    @property
    def versions(self) -> Mapping[str, str | None]:
        """The version of each module of `training.imports`."""
        return {module: found.version or None for module, found in self.imports.items()}

    @property
    def tensorflow(self) -> str | None:
        """The version of its TensorFlow."""
        return self.versions.get(TENSORFLOW)

    @property
    def gpu_names(self) -> Sequence[str]:
        """The names of its GPUs and MIG instances."""
        return list(self.gpus.values())

    @property
    def gpus_seen(self) -> int:
        """The number of its tasks' GPUs that these modules see."""
        return max((found.gpus for found in self.imports.values()), default=0)

    @property
    def python_name(self) -> str:
        """Return what messages call the Python of its tasks."""
        return "its environment" if self.environment else self.python


def launches_by_python(launches: Sequence[Launch], python: str) -> list[Launch]:
    """Return the tasks that `python` runs, those with GPUs first."""
    by_python = [launch for launch in launches if launch.process.argv[0] == python]
    return sorted(by_python, key=lambda launch: not launch.gpus.indexes)


def gpus_of(launches: Sequence[Launch], host: Host) -> GpuNeed:
    """Return the GPUs that the host's tasks need; all of a spare host, which may take any task."""
    if host.spare:
        return GpuNeed(list(host.gpus), len(host.gpus), host.gpus_shared)
    return gpu_need(launches)


def ask_facts(agent: Agent, intent: Intent, launches: Sequence[Launch]) -> HostFacts:
    """Ask a host for its facts; `launches` are its tasks. Raises HostError."""
    inventory, environment = intent.inventory, intent.environment_ids.get(agent.host, "")
    host = inventory.host(agent.host)
    parts = _modules_of(intent, launches)
    python = host.task_python(inventory.project, environment)
    example = next(iter([*launches_by_python(launches, python), *launches]), None)
    spare_env = {**inventory.training.env_and_role_env("worker")[0], **host.env}
    env = example.process.env if example else spare_env
    request = Survey(
        project=inventory.project,
        environment=environment,
        python=python,
        env=env,
        need=gpus_of(launches, host),
        imports=list(inventory.training.imports),
        programs=_programs(launches),
        network=inventory.network,
        sources=_sources(intent, parts),
        statements=_statements(intent, parts, env),
    )
    sent = time.time()
    facts = agent.ask(request, SURVEY_TIMEOUT_S)
    received = time.time()
    if list(facts.imports) != ([] if facts.unbuilt else request.imports):
        raise AgentError(agent.host, f"invalid answer: imports {[*facts.imports]!r:.40}")
    parsed = parse_facts(agent.host, facts, sent, received)
    return replace(parsed, python=python, environment=environment or None)


def _modules_of(intent: Intent, launches: Sequence[Launch]) -> Mapping[str, Module]:
    """Return the modules of the program that these tasks run; without tasks, as on a spare host,
    all modules."""
    if not launches:
        return intent.modules
    has = intent.release.manifest.__contains__
    words = (word for launch in launches for word in frameworks.script_words(launch.process.argv))
    return modules.read(intent.release.root, filter(has, words), has)


def _sources(intent: Intent, program: Mapping[str, Module]) -> dict[str, str]:
    """Return the texts of a program's modules, by their paths."""
    return {path: modules.text(intent.release.root / path) for path in program}


def _statements(
    intent: Intent, program: Mapping[str, Module], env: Mapping[str, str]
) -> list[Statement]:
    """Return the imports that a program can't go on without, with these variables of its tasks;
    none if hosts.toml says what to import."""
    if intent.has_own_imports:
        return []
    found = [
        Statement(path, each.line, each.statement)
        for path, module in program.items()
        for each in module.foreign
        if not each.is_optional
    ]
    if env.get(keras.VARIABLE) in keras.TRUE:  # tf.keras imports it
        uses = (path for path, module in program.items() if TF_KERAS in module.syntax.kerases)
        found += [Statement(path, 0, f"import {keras.PACKAGE}") for path in uses][:1]
    return found


def _programs(launches: Sequence[Launch]) -> dict[str, list[str]]:
    """Return the program of each task, with its PATH, and those of [notify] on the chief's host."""
    targets = [(f"notify.{k}", t) for x in launches for k, t in x.notify.targets().items()]
    return {
        **{x.task: [x.process.argv[0], x.process.env.get("PATH", "")] for x in launches},
        **{key: [target[0], ""] for key, target in targets if not is_url(target)},
    }


def parse_facts(host: str, facts: SurveyAnswer, sent: float, received: float) -> HostFacts:
    """Return the facts that a host reported. By the controller's clock, it was asked at `sent`, and
    its answer was read at `received`. Its version of Python is that of the tasks' Python, if this
    imported something, else the agent's."""
    started, ended = facts.times
    return HostFacts(
        host,
        next((found.python for found in facts.imports.values() if found.python), facts.version),
        facts.imports,
        {int(index): name for index, name in facts.gpus.items() if index.isdecimal()},
        facts.rsync or None,
        facts.here,
        facts.free_bytes,
        round(max(0.0, ended - received) + min(0.0, started - sent), 3),
        tuple(facts.hindrances),
        _libraries(facts),
        facts.unbuilt,
        program=tuple(facts.program),
        gpu_problems=tuple(facts.gpu_problems),
        gpu_failure=facts.gpu_failure,
    )


def _libraries(facts: SurveyAnswer) -> dict[str, str]:
    versions = {"NVIDIA driver": facts.driver} if facts.driver else {}
    for found in facts.imports.values():
        versions |= found.libraries
    return versions
