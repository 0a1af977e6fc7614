"""Measure what a hand-out of a trial costs: python -m bench.trials [TRIALS].

The chief's board and its server are in this process, and the slots are threads of it: sockets and
signatures are real, and no trial runs. Prints the milliseconds from the report of an end to the
number of the next trial, and the bytes that a trial leaves in the journals.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from support.builders import make_heartbeat_settings, make_launch

from tfdeploy.agent import paths
from tfdeploy.agent.supervision.heartbeat import client
from tfdeploy.agent.supervision.heartbeat.messages import Question
from tfdeploy.agent.supervision.heartbeat.server import HeartbeatServer, Observer
from tfdeploy.agent.supervision.trials.board import Board, Journal
from tfdeploy.shared.protocol.record import replace
from tfdeploy.shared.records import HeartbeatSettings, TrialSettings
from tfdeploy.shared.trials import IDLE, OVER, SUCCEEDED, TrialOrder, TrialRecord

SLOTS = 4


def run_slot(settings: HeartbeatSettings, times_ms: list[float]) -> None:
    """Report the end of each trial at once, until none is left."""
    trial = TrialRecord(IDLE, 0, "", settings.task)
    while trial.trial != OVER:
        question = Question(state="READY", known_lists=None, trial=trial)
        started = time.monotonic()
        order = client.request(settings, question)[0].trial
        if order.trial >= 0:
            times_ms.append((time.monotonic() - started) * 1000)
        trial = TrialRecord(order.trial, order.attempt, SUCCEEDED, settings.task, exit=0)


class Trials(Observer):
    """A chief's supervisor that hands out trials."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def trial(self, task: str, question: Question) -> TrialOrder:
        return self._board.report(task, question.trial, question.trials)


def main(trials: int) -> None:
    tasks = [f"worker:{index}" for index in range(SLOTS + 1)]
    settings = make_heartbeat_settings(tasks=tasks, needed=[], secret=os.urandom(8).hex())
    points = [{"learning_rate": str(index)} for index in range(trials)]
    launch = make_launch(heartbeat=settings, trials=TrialSettings(points))
    with tempfile.TemporaryDirectory() as folder:
        sys.argv[0] = f"{folder}/agent/x"  # where paths.py finds the root
        journal = Path(paths.trials(launch.project, launch.run, launch.task))
        journal.parent.mkdir(parents=True)
        board = Board(launch, Journal(launch))
        server = HeartbeatServer(settings, Trials(board))
        address = replace(settings, port=server.port)
        times_ms: list[float] = []
        threads = [
            threading.Thread(target=run_slot, args=(address.of(task), times_ms))
            for task in tasks[1:]
        ]
        started = time.process_time()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        cpu_ms = (time.process_time() - started) * 1000 / trials
        print(f"| {trials:,} | {statistics.median(times_ms):.1f} ms | {cpu_ms:.1f} ms "
              f"| {journal.stat().st_size / trials:.0f} |")  # fmt: skip
        server.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
