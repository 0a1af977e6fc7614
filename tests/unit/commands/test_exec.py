"""`exec`: what is asked, and what a host may answer."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from support.builders import make_plan

from tfdeploy.commands.exec import MAX_WORDS_BYTES, Entrance, execute, find_entrance
from tfdeploy.errors import AgentError, TaskFailed
from tfdeploy.shared.protocol.runs import TaskEntrance

PLAN = make_plan("[hosts.a]\nps = 1\nworkers = 2\n")
RUN = SimpleNamespace(id="r", plan=PLAN, inventory=SimpleNamespace(project="p"))


class Fleet:
    """A fleet of one host, which gives this answer."""

    def __init__(self, *words):
        self.asked = []
        self._words = list(words)

    def outcomes(self, hosts, act):
        return {host: self._outcome(host, act) for host in hosts}

    def _outcome(self, host, act):
        try:
            return act(SimpleNamespace(host=host, ask=self._ask))
        except AgentError as error:
            return error

    def _ask(self, request):
        self.asked.append((request.TAG, request.project, request.run, request.task))
        return TaskEntrance(self._words, "/work")


def test_only_the_host_of_the_task_is_asked():
    fleet = Fleet("python3", "enter")
    entrance = find_entrance(fleet, RUN, "worker:1")
    assert fleet.asked == [("enter", "p", "r", "worker:1")]
    assert (entrance.words, entrance.directory) == (("python3", "enter"), "/work")


@pytest.mark.parametrize("words", [(), ("python3", "a\nb"), ("\x1b[2J",)])
def test_a_command_line_that_no_agent_gives_is_refused(words):
    with pytest.raises(AgentError, match="invalid answer: the command"):
        find_entrance(Fleet(*words), RUN, "ps:0")


def test_a_command_that_is_too_long_is_refused_before_it_is_sent():
    entrance = Entrance(PLAN.placements[0], ("python3",), "/work")
    with pytest.raises(TaskFailed, match=f"expected at most {MAX_WORDS_BYTES}"):
        execute(RUN.inventory, entrance, ["x" * MAX_WORDS_BYTES], terminal=False)
