"""What `tfdeploy check` makes of the facts that a host reports."""

from __future__ import annotations

import math

import pytest
from support.builders import make_inventory

from tfdeploy.commands.check import CheckResult, _check_versions, _full_disk, _wrong_clock
from tfdeploy.commands.preflight.host_facts import parse_facts
from tfdeploy.commands.preflight.port_check import _verified
from tfdeploy.errors import AgentError
from tfdeploy.shared.protocol.message import Invalid, parse
from tfdeploy.shared.protocol.preflight import OpenPorts, SurveyAnswer

FACTS = {
    **{"version": "3.11.7", "imports": {}, "gpus": {}, "rsync": "", "here": ""},
    **{"free_bytes": 0, "hindrances": [], "times": [0.0, 0.0]},
    **{"driver": "", "unbuilt": False},
}


@pytest.mark.parametrize(
    "change",
    [
        *({"times": [0.0, value]} for value in ("x", math.inf, math.nan, None)),
        *({"free_bytes": value} for value in ("x", math.inf, None)),
        *({"gpus": value} for value in ([], {"x": 1}, 3)),
        *({"imports": value} for value in ([], {"tensorflow": {"gpus": "x"}}, 3)),
        *({"hindrances": value} for value in ([[]], [3], 3)),
    ],
)
def test_invalid_facts_of_a_host_are_refused(change):
    assert parse(SurveyAnswer, FACTS).version == "3.11.7"
    with pytest.raises(Invalid):
        parse(SurveyAnswer, FACTS | change)


@pytest.mark.parametrize(
    "change",
    [{}, {"end": True}, {"open": {}, "taken": 3}, {"open": {"ps:0": 0}, "taken": []},
     {"open": {"ps:0": "x"}, "taken": []}, {"open": {"ps:0": 1 << 16}, "taken": []}],
)  # fmt: skip
def test_invalid_ports_of_a_host_are_refused(change):
    with pytest.raises((AgentError, Invalid)):
        _verified("h", parse(OpenPorts, change))


def test_hosts_with_other_libraries_than_most_are_noted():
    hosts = {"a": {}, "b": {}, "c": {"numpy": "1.26", "CUDA": "12.3"}}
    facts = []
    for name, other in hosts.items():
        libraries = {"Keras": "3.9", "numpy": "2.1", "CUDA": "12.5", **other}
        python = "3.11.2" if other else "3.12.1"
        found = {"version": "2.21.0", "python": python, "libraries": libraries}
        answer = parse(SurveyAnswer, {**FACTS, "imports": {"tensorflow": found}})
        facts.append(parse_facts(name, answer, 0.0, 0.0))
    result = CheckResult(tuple(facts))
    _check_versions(result, make_inventory())
    assert [note.message for note in result.notes] == [
        "hosts differ: CUDA 12.3 on c, 12.5 on a, b; Python 3.11 on c, 3.12 on a, b; "
        "numpy 1.26 on c, 2.1 on a, b"
    ]


def test_another_tensorflow_of_a_spare_host_is_a_note():
    answers = {
        name: parse(SurveyAnswer, {**FACTS, "imports": {"tensorflow": {"version": version}}})
        for name, version in {"a": "2.15.0", "b": "2.16.0"}.items()
    }
    result = CheckResult(tuple(parse_facts(name, each, 0.0, 0.0) for name, each in answers.items()))
    _check_versions(result, make_inventory("[hosts.a]\nworkers = 1\n[hosts.b]\nspare = true"))
    assert result.errors == []
    assert [note.message.partition(":")[0] for note in result.notes] == [
        "TensorFlow 2.15.0 on a, 2.16.0 on b"
    ]


@pytest.mark.parametrize(
    ("ahead_s", "waits_s", "expected"),
    [
        (3600.0, (0.0, 0.0), ["h: its clock is 1h 00m ahead of the controller's"]),
        (-90.0, (0.0, 0.0), ["h: its clock is 1m 30s behind the controller's"]),
        (-90.0, (10.0, 0.0), ["h: its clock is 1m 20s behind the controller's"]),
        (2.0, (0.0, 0.0), []),
        (0.0, (0.0, 9.0), []),  # a busy controller reads the answer late
        (0.0, (9.0, 0.0), []),  # a host is slow to connect
    ],
)
def test_a_clock_that_is_certainly_wrong_is_noted(ahead_s, waits_s, expected):
    worked_s = 20.0
    times = [ahead_s + waits_s[0], ahead_s + waits_s[0] + worked_s]
    answer = parse(SurveyAnswer, FACTS | {"times": times})
    found = _wrong_clock(parse_facts("h", answer, 0.0, worked_s + sum(waits_s)))
    assert [str(note).splitlines()[0] for note in found] == expected


@pytest.mark.parametrize(
    ("free", "expected"),
    [(10**9, ["h: only 1.0 GB are free on the disk of its directory"]), (2 * 10**9, [])],
)
def test_a_nearly_full_disk_is_noted(free, expected):
    found = _full_disk(
        parse_facts("h", parse(SurveyAnswer, FACTS | {"free_bytes": free}), 0.0, 0.0)
    )
    assert [str(note).splitlines()[0] for note in found] == expected
