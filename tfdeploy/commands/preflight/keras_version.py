"""Find out whether the program fails with the Keras that a host has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfdeploy.errors import AgentError
from tfdeploy.init import keras
from tfdeploy.init.strategy import keras_2_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfdeploy.commands.intent import Intent
    from tfdeploy.commands.preflight.host_facts import HostFacts
    from tfdeploy.init.keras import NeedOfKeras2


def problem(
    intent: Intent, facts: HostFacts, env: Mapping[str, str]
) -> tuple[list[AgentError], list[AgentError]]:
    """Return errors and notes about a program that needs Keras 2 on a host with Keras 3; `env` are
    the variables of its tasks. It is an error if the program certainly fails."""
    need = _need(intent)
    version = facts.libraries.get("Keras", "")
    if need is None or version.startswith("2.") or _is_met(intent, need, env):
        return [], []
    found = [AgentError(facts.host, need.message, need.hint)]
    return (found, []) if need.is_certain and version else ([], found)


def _need(intent: Intent) -> NeedOfKeras2 | None:
    need = keras_2_of({path: module.syntax for path, module in intent.modules.items()})
    jobs = intent.plan.cluster
    is_alone = "ps" not in jobs and sum(map(len, jobs.values())) < 2
    return None if need and need.strategy and is_alone else need


def _is_met(intent: Intent, need: NeedOfKeras2, env: Mapping[str, str]) -> bool:
    """Return whether variables, or the program itself, choose another Keras or its backend."""
    if need.by_import:
        return env.get(keras.BACKEND, "tensorflow") != "tensorflow"
    by_itself = any(keras.VARIABLE in each.syntax.strings for each in intent.modules.values())
    return by_itself or env.get(keras.VARIABLE) in keras.TRUE
