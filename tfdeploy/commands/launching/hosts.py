"""Send each host of a run its tasks, and keep the streams over which it reports them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tfdeploy import run as runs
from tfdeploy.errors import AgentError, LeaseConflict
from tfdeploy.hosts.agent_session import query
from tfdeploy.shared.protocol.reports import Started
from tfdeploy.shared.protocol.runs import RunRecord, Start

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfdeploy.hosts.agent_client import Agent, AnswerStream
    from tfdeploy.hosts.fleet import Fleet
    from tfdeploy.run import Run
    from tfdeploy.shared.protocol.reports import RunEvent
    from tfdeploy.shared.records import Launch

LEASE_WAIT_S = 20.0  # for a start of the same moment that fails: it stops its tasks first
LEASE_RETRY_S = 0.5


class Launching:
    """One start of a run. `streams` report what follows on the hosts that have started their tasks.
    `has_started`: all hosts have."""

    def __init__(
        self, fleet: Fleet, run: Run, launches_on: Callable[[str], tuple[Launch, ...]]
    ) -> None:
        self.streams: dict[str, AnswerStream[RunEvent]] = {}
        self._fleet = fleet
        self._run = run
        self._launches_on = launches_on
        self._is_closed = False
        self.has_started = False
        text = runs.to_record(run)
        self._record = RunRecord(run.starts, text.run_json, text.hosts_toml, run.launched)

    def start_hosts(self) -> dict[str, Started]:
        """Send each host its tasks, in the plan's order (ps, workers, chief), and the run's record;
        return the answers. Raises the errors of all hosts."""
        answers = self._fleet.each(self._run.plan.hosts, self._start_on)
        self.has_started = True
        return answers

    def close(self) -> None:
        """Hang up on the hosts that are still followed."""
        self._is_closed = True
        for stream in list(self.streams.values()):
            stream.close()

    def _start_on(self, agent: Agent) -> Started:
        """Start a host's tasks; if another run has their ports or GPUs, wait up to LEASE_WAIT_S.

        If two runs that start at the same moment hold a host that the other one needs, the run with
        the smaller id waits and the other one fails, so that one of them gets all hosts. A run on a
        single host never waits: the run that came first has all that it needs.
        """
        request = query(Start([*self._launches_on(agent.host)], self._record))
        deadline = time.monotonic() + (LEASE_WAIT_S if len(self._run.plan.hosts) > 1 else 0.0)
        while True:
            stream = agent.stream_encoded(request)
            try:
                started = stream.open()
            except LeaseConflict as conflict:
                is_late = self._is_closed or time.monotonic() > deadline
                if is_late or self._run.id > conflict.run:
                    raise
            else:
                self.streams[agent.host] = stream
                if self._is_closed:
                    stream.close()
                if not isinstance(started, Started):
                    raise AgentError(agent.host, "invalid answer: it reports no start")
                return started
            time.sleep(LEASE_RETRY_S)
