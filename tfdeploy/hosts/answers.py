"""The answers of agents, by their tags."""

from __future__ import annotations

from typing import TypeVar, cast

from tfdeploy.shared.protocol import environments, outputs, preflight, releases, reports, runs
from tfdeploy.shared.protocol.message import (
    TAG,
    Done,
    Invalid,
    Message,
    Request,
    answer_class,
    parse,
)

A = TypeVar("A")
CLASSES: tuple[type[Message], ...] = (
    Done,
    environments.Built,
    environments.BuildStep,
    environments.EnvironmentSeen,
    environments.EnvironmentState,
    environments.NotInstalled,
    outputs.ArrivalFolder,
    outputs.Damaged,
    outputs.EventFiles,
    outputs.FoundFiles,
    outputs.Held,
    outputs.HeldCopies,
    outputs.ReplicatedOutputs,
    outputs.TaskOutputs,
    outputs.TaskResults,
    preflight.FreePorts,
    preflight.LinkPort,
    preflight.LiveTasks,
    preflight.MachineFacts,
    preflight.MeasuredLink,
    preflight.OpenPorts,
    preflight.PeersAsked,
    preflight.StillRunning,
    preflight.SurveyAnswer,
    preflight.TriedPorts,
    releases.FilesReceived,
    releases.Marked,
    releases.MissingFiles,
    releases.ReleaseState,
    releases.Renamed,
    releases.Seen,
    releases.Sharing,
    reports.HostQueue,
    reports.HostSample,
    reports.HostState,
    reports.LogFiles,
    reports.LogLines,
    reports.NewCheckpoint,
    reports.NewOutputs,
    reports.Piece,
    reports.RecordedTrials,
    reports.Started,
    reports.StateChange,
    reports.TaskReports,
    runs.DiskUse,
    runs.KnownRuns,
    runs.RecordTexts,
    runs.Removed,
    runs.Stopped,
    runs.TaskEntrance,
)
ANSWERS = {each.TAG: each for each in CLASSES}


def read_answer(request: Request[A], answer: dict[str, object]) -> A:
    """Read an answer to a request. Raises Invalid, also if its class is not the request's."""
    expected, tag = answer_class(type(request)), str(answer.get(TAG))
    found = ANSWERS.get(tag)
    if found is None or not issubclass(found, expected):
        raise Invalid(f"{TAG} is {tag!r:.40}, expected that of {expected.__name__}")
    return cast("A", parse(found, answer))
