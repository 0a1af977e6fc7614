"""Python environments on a host: whether one is built, and building it."""

from __future__ import annotations

from typing import Dict, List

from .message import Message, Request


class EnvironmentState(Message, tag="environment_state"):
    """Whether the environment is `built`; its `python` is a version, `packages` the version of each
    package. `uv` is the version of the host's uv, "" without one; `machine` and `libc` are words
    such as x86_64 and "glibc 2.36"; `here` is the id of the agent's directory."""

    built: bool
    python: str
    packages: Dict[str, str]
    uv: str
    machine: str
    libc: str
    here: str


class FindEnvironment(Request[EnvironmentState], tag="environment"):
    """Ask whether a host has an environment, and what could build it."""

    REPEATABLE = True
    project: str
    environment: str
    uv: str = ""


class EnvironmentSeen(Message, tag="environment_seen"):
    """The hash of an environment's marker as the host sees it, "" if it sees none; the version that
    the environment's Python prints when it runs on this host, "" if it does not run, and then why;
    `machine` and `libc` as in EnvironmentState."""

    digest: str
    python: str
    why: str
    machine: str
    libc: str


class SeeEnvironment(Request[EnvironmentSeen], tag="see_environment"):
    """Ask how a host sees an environment; wait some time until its marker's hash is `digest`
    (unless "")."""

    project: str
    environment: str
    digest: str


class BuildReport(Message):
    """What happens while an environment is built."""


class BuildStep(BuildReport, tag="build_step"):
    """What is being done."""

    doing: str


class Built(BuildReport, tag="built"):
    """The environment is complete: the version of each package, and of Python. `fresh`: it was
    built for this request."""

    packages: Dict[str, str]
    python: str
    fresh: bool


class NotInstalled(BuildReport, tag="not_installed"):
    """The packages could not be installed: the installer's own `words`. Nothing is left of the
    environment. `python` is its version, `machine` and `libc` as in EnvironmentState."""

    words: str
    python: str
    machine: str
    libc: str


class BuildEnvironment(Request[BuildReport], tag="build"):
    """Build an environment, unless it is complete.

    `requirements` and `constraints` are lines, `locked` the texts of uv.lock and pyproject.toml by
    name; `python` is a version, "" for the agent's own; `setup` are shell commands; `env` are more
    variables for all programs. `uv` and `wheels` are releases: one that has uv ("": the host has
    its own), and one with all wheels, which are then installed without any index ("": none).
    """

    project: str
    environment: str
    requirements: List[str]
    constraints: List[str]
    locked: Dict[str, str]
    python: str
    setup: List[str]
    env: Dict[str, str]
    uv: str = ""
    wheels: str = ""
