"""Explain what keeps the program from starting on a host: what it can't compile or import there."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tfdeploy.config.toml_text import to_toml
from tfdeploy.environments import packages
from tfdeploy.errors import AgentError
from tfdeploy.init import keras
from tfdeploy.planning.frameworks import title

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfdeploy.commands.intent import Intent
    from tfdeploy.commands.preflight.host_facts import HostFacts
    from tfdeploy.shared.protocol.preflight import ProgramError

NOT_FOUND = "ModuleNotFoundError"


def errors(intent: Intent, facts: HostFacts) -> Iterator[AgentError]:
    """Yield what keeps the program from starting on a host, each cause once, with what to do."""
    env, said = intent.inventory.env, {name for name, each in facts.imports.items() if each.error}
    if facts.unbuilt and env and env.python:
        return  # another version of Python compiled it
    lacking: dict[str, ProgramError] = {}
    for each in facts.program:
        is_of_package = _is_of_package(facts, each.missing)
        cause = _package(intent, each) if is_of_package else each.missing or each.error
        if cause in said or _is_in_source(intent, each.missing):
            continue
        said.add(cause)
        if is_of_package and not _is_excluded(intent, each.missing):
            lacking[cause] = each
        else:
            yield AgentError(facts.host, *_explain(intent, facts, each))
    if lacking:
        places = ", ".join(_needed(intent, each) for each in lacking.values())
        absent = [name for name, each in facts.imports.items() if NOT_FOUND in each.error]
        names = [*map(packages.package_of, absent), *lacking]
        hint = _add_to_requirements(intent, list(dict.fromkeys(names)))
        yield AgentError(facts.host, f"{facts.python_name} has no {places}", hint)


def _is_in_source(intent: Intent, module: str) -> bool:
    """Return whether the release has a module in any folder: the program may add it to its path."""
    return bool(module) and any(
        f"/{path}".endswith((f"/{file}.py", f"/{file}/__init__.py"))
        for file in [module.replace(".", "/")]
        for path in intent.release.manifest
    )


def _is_of_package(facts: HostFacts, module: str) -> bool:
    """Return whether a missing module is that of a package, and not a part of a framework or of
    Python that another version has."""
    top = module.partition(".")[0]
    return bool(top) and top not in sys.stdlib_module_names and top not in facts.imports


def _is_excluded(intent: Intent, module: str) -> bool:
    """Return whether a module is in the source folder, but not in the release."""
    return (intent.release.root / f"{module.replace('.', '/')}.py").exists()


def _explain(intent: Intent, facts: HostFacts, error: ProgramError) -> tuple[str, str]:
    """Return the message and the hint for an error other than a missing package."""
    words = f"{_place(error)}: {error.error}"
    if error.missing and _is_excluded(intent, error.missing):
        return words, "source.exclude or a rule of git leaves the file out: correct that"
    python = f"Python {facts.python_version}"
    if error.error.startswith(("SyntaxError", "IndentationError", "TabError")):
        return words, f"correct it for {python}"
    versions = [f"{title(name)} {each.version}" for name, each in facts.imports.items()]
    return words, f"correct it for {' and '.join([python, *versions])}, or install other versions"


def _place(error: ProgramError) -> str:
    return f"{error.file}, line {error.line}" if error.line else error.file


def _needed(intent: Intent, error: ProgramError) -> str:
    """Return a missing package and what needs it."""
    module = intent.modules.get(error.file)
    found = (each for each in module.foreign if each.line == error.line) if module else ()
    feature = next((each.feature for each in found if each.module == error.missing), "")
    feature = keras.VARIABLE if error.missing == keras.PACKAGE and not error.line else feature
    needed_for = f" for {feature}" if feature else ""
    return f"{_package(intent, error)} ({_place(error)}{needed_for})"


def _package(intent: Intent, error: ProgramError) -> str:
    return packages.missing(intent.modules, error.file, error.line, error.missing)


def _add_to_requirements(intent: Intent, names: list[str]) -> str:
    """Return what to write, so that the hosts get these packages."""
    env = intent.inventory.env
    if env and isinstance(env.requirements, str):
        return f"add to {env.requirements}: {', '.join(names)}"
    if env:
        return f"in [env] of hosts.toml: {_line([*env.requirements, *names])}"
    of_program = {name: each.module for name, (_, each) in packages.find(intent.modules).items()}
    foreign = [
        name
        for name, module in of_program.items()
        if not (_is_excluded(intent, module) or _is_in_source(intent, module))
    ]
    line = _line(list(dict.fromkeys([*intent.inventory.training.imports, *foreign, *names])))
    return f"install it there; or in hosts.toml, below [env]: {line}"


def _line(requirements: list[str]) -> str:
    return f"requirements = {to_toml(requirements)}"
